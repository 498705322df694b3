"""One broker without its sockets: routing tables, prioritised queues, meters, and the admission of reconfigurations."""
