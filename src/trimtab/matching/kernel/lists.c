/* Records sorted by their one bound, in chunks, so that an insertion moves little. "Less than" lists are sorted by the negated
 * bound: what matches is always a prefix. */
#include "kernel.h"

enum { CHUNK_MAX = 256 };

/* The number of keys below the wanted one, or not above it if `or_equal`. */
static uint32_t position(const double *keys, uint32_t count, double key, int or_equal)
{
    uint32_t low = 0;
    while (count > 0) { /* without branches that depend on the keys */
        uint32_t half = (count + 1) / 2;
        double at = keys[low + half - 1];
        low += (at < key) | (or_equal & (at == key)) ? half : 0;
        count -= half;
    }
    return low;
}

static Prefix prefix_of(List *list, double key, int or_equal)
{
    uint32_t low = 0, high = list->chunk_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        double first = list->chunks[middle].first;
        if (first < key || (or_equal && first == key))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return (Prefix){list, 0, 0};
    Chunk *chunk = list->chunks[low - 1].chunk;
    return (Prefix){list, low - 1, position(chunk->keys, chunk->count, key, or_equal)};
}

/* The records whose predicate holds for a number. */
Prefix list_prefix(List *list, double x, int side)
{
    if (list->op >= OP_LT) {
        x = -x;
        side = -side;
    }
    int strict = list->op == OP_GT || list->op == OP_LT;
    return prefix_of(list, x, side > 0 || (side == 0 && !strict));
}

/* The records whose key is below the given one, or equal to it unless strict. */
Prefix list_not_above(List *list, double key, int strict) { return prefix_of(list, key, !strict); }

Record *list_find(List *list, double key)
{
    Prefix prefix = prefix_of(list, key, 1);
    if (prefix.offset == 0)
        return NULL;
    Chunk *chunk = list->chunks[prefix.chunk].chunk;
    return chunk->keys[prefix.offset - 1] == key ? chunk->records[prefix.offset - 1] : NULL;
}

static Chunk *chunk_new(uint32_t room)
{
    Chunk *chunk = NEW(Chunk, 1);
    *chunk = (Chunk){0, room, NEW(double, room), NEW(Record *, room)};
    return chunk;
}

static void chunk_free(Chunk *chunk)
{
    free(chunk->keys);
    free(chunk->records);
    free(chunk);
}

static void add_chunk(List *list, uint32_t at, Chunk *chunk)
{
    if (list->chunk_count == list->chunk_room) {
        list->chunk_room = list->chunk_room ? list->chunk_room * 2 : 1;
        list->chunks = GROW(list->chunks, ChunkEntry, list->chunk_room);
    }
    memmove(list->chunks + at + 1, list->chunks + at, sizeof(ChunkEntry) * (list->chunk_count - at));
    list->chunks[at] = (ChunkEntry){chunk->count ? chunk->keys[0] : 0, chunk};
    list->chunk_count++;
}

static void split_chunk(List *list, uint32_t at)
{
    Chunk *left = list->chunks[at].chunk, *right = chunk_new(CHUNK_MAX);
    uint32_t half = left->count / 2;
    right->count = left->count - half;
    memcpy(right->keys, left->keys + half, sizeof(double) * right->count);
    memcpy(right->records, left->records + half, sizeof(Record *) * right->count);
    left->count = half;
    add_chunk(list, at + 1, right);
}

void list_insert(List *list, double key, Record *record)
{
    if (list->chunk_count == 0)
        add_chunk(list, 0, chunk_new(4));
    Prefix prefix = prefix_of(list, key, 1);
    Chunk *chunk = list->chunks[prefix.chunk].chunk;
    if (chunk->count == CHUNK_MAX) {
        split_chunk(list, prefix.chunk);
        prefix = prefix_of(list, key, 1);
        chunk = list->chunks[prefix.chunk].chunk;
    }
    if (chunk->count == chunk->room) {
        chunk->room = chunk->room * 3 / 2 + 1 < CHUNK_MAX ? chunk->room * 3 / 2 + 1 : CHUNK_MAX;
        chunk->keys = GROW(chunk->keys, double, chunk->room);
        chunk->records = GROW(chunk->records, Record *, chunk->room);
    }
    uint32_t after = chunk->count - prefix.offset;
    memmove(chunk->keys + prefix.offset + 1, chunk->keys + prefix.offset, sizeof(double) * after);
    memmove(chunk->records + prefix.offset + 1, chunk->records + prefix.offset, sizeof(Record *) * after);
    chunk->keys[prefix.offset] = key;
    chunk->records[prefix.offset] = record;
    chunk->count++;
    list->chunks[prefix.chunk].first = chunk->keys[0];
}

void list_remove(List *list, double key, Record *record)
{
    Prefix prefix = prefix_of(list, key, 1);
    Chunk *chunk = list->chunks[prefix.chunk].chunk;
    uint32_t at = prefix.offset - 1;
    if (prefix.offset == 0 || chunk->records[at] != record)
        Py_FatalError("trimtab: a record is missing from its list");
    chunk->count--;
    memmove(chunk->keys + at, chunk->keys + at + 1, sizeof(double) * (chunk->count - at));
    memmove(chunk->records + at, chunk->records + at + 1, sizeof(Record *) * (chunk->count - at));
    if (chunk->count > 0) {
        list->chunks[prefix.chunk].first = chunk->keys[0];
        return;
    }
    chunk_free(chunk);
    list->chunk_count--;
    memmove(list->chunks + prefix.chunk, list->chunks + prefix.chunk + 1,
            sizeof(ChunkEntry) * (list->chunk_count - prefix.chunk));
}

void list_free(List *list)
{
    for (uint32_t at = 0; at < list->chunk_count; at++)
        chunk_free(list->chunks[at].chunk);
    free(list->chunks);
    free(list);
}
