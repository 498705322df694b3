"""Deaths, takeovers and what is retained for them: replicas, assistants, acknowledgement levels, gap notices.

Begin with `takeover`.
"""
