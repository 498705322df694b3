/* Ids by hash, open addressing. When a part is full a larger one is begun and the old one is moved over a few slots at each
 * insertion, so that no single insertion takes long. */
#include "kernel.h"

enum { EMPTY = 0, REMOVED = 1, FIRST_ID = 2, MOVES_PER_STEP = 16, SIZE_MIN = 8 };

static int find_in(const HashPart *part, uint32_t code, HashSame same, const void *context, const void *wanted,
                   uint32_t *id)
{
    if (part->size == 0)
        return 0;
    size_t mask = part->size - 1;
    for (size_t at = code & mask;; at = (at + 1) & mask) {
        uint32_t slot = part->slots[at];
        if (slot == EMPTY)
            return 0;
        if (slot == REMOVED)
            continue;
        int answer = same(context, slot - FIRST_ID, wanted);
        if (answer != 0) {
            *id = slot - FIRST_ID;
            return answer;
        }
    }
}

/* 1 and the id if an entry is the same as the wanted one, 0 if none is, -1 if a comparison failed. */
int hash_find(const Hash *hash, uint32_t code, HashSame same, const void *context, const void *wanted, uint32_t *id)
{
    int answer = find_in(&hash->now, code, same, context, wanted, id);
    return answer != 0 ? answer : find_in(&hash->old, code, same, context, wanted, id);
}

static void put(HashPart *part, uint32_t code, uint32_t slot)
{
    size_t mask = part->size - 1, at = code & mask;
    while (part->slots[at] > REMOVED)
        at = (at + 1) & mask;
    if (part->slots[at] == EMPTY)
        part->filled++;
    part->slots[at] = slot;
}

static void move_some(Hash *hash, size_t moves, HashOf code_of, const void *context)
{
    HashPart *old = &hash->old;
    for (; old->size && moves > 0; moves--) {
        uint32_t slot = old->slots[hash->moved];
        if (slot > REMOVED) {
            put(&hash->now, code_of(context, slot - FIRST_ID), slot);
            old->slots[hash->moved] = REMOVED;
        }
        if (++hash->moved == old->size) {
            free(old->slots);
            *old = (HashPart){0};
        }
    }
}

void hash_insert(Hash *hash, uint32_t code, uint32_t id, HashOf code_of, const void *context)
{
    move_some(hash, MOVES_PER_STEP, code_of, context);
    if ((hash->now.filled + 1) * 5 > hash->now.size * 3) {
        move_some(hash, SIZE_MAX, code_of, context);
        size_t size = SIZE_MIN;
        while (size < hash->live * 3)
            size *= 2;
        hash->old = hash->now;
        hash->moved = 0;
        hash->now = (HashPart){NEW_ZEROED(uint32_t, size), size, 0};
        move_some(hash, MOVES_PER_STEP, code_of, context);
    }
    put(&hash->now, code, id + FIRST_ID);
    hash->live++;
}

static int remove_from(HashPart *part, uint32_t code, uint32_t id)
{
    if (part->size == 0)
        return 0;
    size_t mask = part->size - 1;
    for (size_t at = code & mask; part->slots[at] != EMPTY; at = (at + 1) & mask) {
        if (part->slots[at] == id + FIRST_ID) {
            part->slots[at] = REMOVED;
            return 1;
        }
    }
    return 0;
}

void hash_remove(Hash *hash, uint32_t code, uint32_t id)
{
    if (remove_from(&hash->now, code, id) || remove_from(&hash->old, code, id))
        hash->live--;
}

void hash_free(Hash *hash)
{
    free(hash->now.slots);
    free(hash->old.slots);
    *hash = (Hash){0};
}
