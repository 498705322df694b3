/* The compiled matching kernel: what its files share.
 *
 * One publication's way through the kernel (index.c): its values are read once into a table by attribute (values.c); the
 * equality tables lead to clusters of filters whose equalities all hold; within a cluster
 *   - filters with nothing else to ask match at once,
 *   - filters with one one-sided number predicate stand in sorted lists, of which a prefix matches (lists.c),
 *   - all others stand in blocks of bitmaps that leave few candidates, which are then verified (blocks.c, terms.c).
 * The result keeps prefixes and records, never a Python object per match (matches.c).
 */
#ifndef TRIMTAB_KERNEL_H
#define TRIMTAB_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#define LOWEST_BIT(word) __builtin_ctzll(word)
#else
#define PREFETCH(address) ((void)(address))
static inline int LOWEST_BIT(uint64_t word)
{
    int bit = 0;
    while (!(word & 1)) {
        word >>= 1;
        bit++;
    }
    return bit;
}
#endif

/* ---- memory: the kernel cannot go on without it ---- */

static inline void *must(void *memory)
{
    if (memory == NULL)
        Py_FatalError("trimtab: out of memory in the matching kernel");
    return memory;
}
#define NEW(type, count) ((type *)must(malloc(sizeof(type) * (size_t)(count))))
#define NEW_ZEROED(type, count) ((type *)must(calloc((size_t)(count), sizeof(type))))
#define GROW(pointer, type, count) ((type *)must(realloc((pointer), sizeof(type) * (size_t)(count))))

/* ---- values and terms ---- */

enum { NUM, STR, BOOL, ANY }; /* kinds; ANY only for terms that ask for mere presence */

/* A publication's value. Numbers are doubles; `side` tells on which side of `x` an integer lies that no double holds. */
typedef struct {
    double x;        /* position on the axis of its kind; of strings only the first six bytes, see text_position */
    PyObject *object; /* borrowed */
    uint64_t hash;   /* for the equality tables */
    uint32_t stamp;  /* the publication it belongs to */
    uint8_t kind;
    int8_t side;
    uint8_t placed;  /* x of a string has been computed */
} Value;

enum { LO_OPEN = 1, HI_OPEN = 2, VERIFY = 4, EQUAL = 8, LOOSE = 16 };
enum { TEXT_NONE, TEXT_PREFIX, TEXT_SUFFIX, TEXT_CONTAINS };

/* What a filter asks of one attribute: an interval on the axis of its kind that contains all it admits.
 * VERIFY: the interval is not the whole story, ask the constraint. EQUAL: exactly one value. LOOSE: the interval may be
 * wider than what is admitted, so it must not be used to rule out that another term covers this one. */
typedef struct {
    uint32_t attribute;
    uint8_t kind, flags, text;
    int8_t lo_side, hi_side; /* as Value.side, for bounds that no double holds (then VERIFY is set too) */
    double lo, hi;
    PyObject *constraint; /* borrowed while reading, owned in records; NULL for plain numbers and booleans */
    PyObject *literal;    /* the text of a string term that is an equality, prefix, suffix or part; owned by constraint */
} Term;

/* A stored filter without the equalities that its cluster holds. Term heads, bounds and objects follow the header. */
typedef struct Record {
    struct Cluster *cluster;
    void *home; /* the Leaf or List that holds it */
    uint32_t first_key;
    uint32_t hash;
    uint32_t key_count : 28, place : 2, has_objects : 1;
    uint16_t slot; /* in its leaf */
    uint16_t term_count;
} Record;
enum { IN_CLUSTER, IN_LIST, IN_LEAF };

static inline uint32_t *record_heads(const Record *record) { return (uint32_t *)(record + 1); }
static inline double *record_bounds(const Record *record)
{
    return (double *)(record_heads(record) + ((record->term_count + 1u) & ~1u));
}
static inline PyObject **record_objects(const Record *record)
{
    return (PyObject **)(record_bounds(record) + 2 * record->term_count);
}

#define ATTRIBUTE_BITS 20
#define ATTRIBUTES_MAX (1u << ATTRIBUTE_BITS)
static inline uint32_t head_attribute(uint32_t head) { return head & (ATTRIBUTES_MAX - 1); }
static inline unsigned head_kind(uint32_t head) { return head >> 20 & 3; }
static inline unsigned head_flags(uint32_t head) { return head >> 22 & 31; }
static inline unsigned head_text(uint32_t head) { return head >> 27 & 3; }

/* ---- hash.c: ids by hash, growing a little at each step ---- */

typedef struct {
    uint32_t *slots;
    size_t size, filled;
} HashPart;
typedef struct {
    HashPart now, old;
    size_t moved, live;
} Hash;
typedef uint32_t (*HashOf)(const void *context, uint32_t id);
typedef int (*HashSame)(const void *context, uint32_t id, const void *wanted); /* 1, 0 or -1 with an error set */

int hash_find(const Hash *hash, uint32_t code, HashSame same, const void *context, const void *wanted, uint32_t *id);
void hash_insert(Hash *hash, uint32_t code, uint32_t id, HashOf code_of, const void *context);
void hash_remove(Hash *hash, uint32_t code, uint32_t id);
void hash_free(Hash *hash);
static inline uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0x9E3779B97F4A7C15ull;
    h ^= h >> 29;
    return h;
}

/* ---- lists.c: records sorted by one bound ---- */

typedef struct {
    uint32_t count, room;
    double *keys;
    Record **records;
} Chunk;
typedef struct {
    double first;
    Chunk *chunk;
} ChunkEntry;
enum { OP_GT, OP_GE, OP_LT, OP_LE };
typedef struct List {
    ChunkEntry *chunks;
    uint32_t chunk_count, chunk_room;
    uint32_t attribute;
    uint32_t op;
} List;
typedef struct {
    List *list;
    uint32_t chunk, offset; /* all chunks before, and this many records of this chunk */
} Prefix;

static inline double list_key(uint32_t op, double bound) { return op >= OP_LT ? -bound : bound; }
Prefix list_prefix(List *list, double x, int side);
Prefix list_not_above(List *list, double key, int strict);
Record *list_find(List *list, double key);
void list_insert(List *list, double key, Record *record);
void list_remove(List *list, double key, Record *record);
void list_free(List *list);

/* ---- blocks.c: a tree whose leaves hold up to BLOCK records as bitmaps ---- */

#define BLOCK 1024
#define BLOCK_WORDS (BLOCK / 64)
#define CELLS 32
#define FINE_CELLS 256 /* each cell is divided into eight fine ones */
#define ABSENT CELLS /* the row for publications without the dimension */
#define ROWS (CELLS + 1)
#define ROW_DIMENSIONS_MAX 24
#define AXES_MAX 255

#define NOWHERE FINE_CELLS

static inline uint32_t dimension_of(uint32_t attribute, unsigned kind) { return attribute << 2 | kind; }

/* A dimension (attribute and kind) as one leaf sees it. */
typedef struct {
    uint32_t uses;
    int32_t row; /* number of its rows in the leaf, -1 if too few records use it */
    uint64_t users[BLOCK_WORDS];
} LeafDimension;

/* A record's place in a leaf, with its bounds as fine cells: most candidates are settled without reading the record. */
#define SLOT_TERMS 7
typedef struct {
    Record *record; /* first, so that a slot is a place of a record */
    uint8_t count;  /* terms that follow */
    uint8_t axes[SLOT_TERMS], lo[SLOT_TERMS], hi[SLOT_TERMS];
    uint8_t open; /* there is more to ask than cells can tell */
    uint8_t unused;
} Slot;

/* What questions need stands first. */
typedef struct Leaf {
    uint64_t *rows; /* per dimension ROWS rows; a set bit: the record does not exclude the cell */
    Slot *slots;
    uint32_t *dimension_ids; /* apart from the rest, for it is searched often */
    LeafDimension *dimensions;
    uint32_t count, highest, words; /* records, one more than the highest slot in use, words in a row */
    uint32_t row_count, dimension_count, dimension_room;
    uint8_t row_axes[ROW_DIMENSIONS_MAX];
    uint64_t active[BLOCK_WORDS];
    uint16_t *marks; /* part of each record's hash, to find an identical one */
    uint32_t room;   /* slots allocated */
    uint32_t index;  /* in the tree's leaves */
} Leaf;

typedef struct Node {
    Leaf *leaf; /* NULL for an inner node */
    uint32_t dimension;
    uint32_t hash_bit; /* 0: divided by dimension, otherwise by this bit of the hash, counted from 1 */
    double threshold;
    double lo[3], hi[3];      /* what each child's records may admit in the dimension; unused for the first */
    struct Node *children[3]; /* without the dimension, below the threshold, not below */
} Node;

/* The cells of one dimension for a whole tree, fixed when the first leaf builds rows for it. */
typedef struct {
    uint32_t dimension;
    uint64_t *users; /* by leaf: which of its records use the dimension; together, so that they are read as one stream */
    double edges[FINE_CELLS - 1];
} Axis;

typedef struct {
    Node *root;
    Leaf **leaves;
    uint32_t leaf_count, leaf_room;
    Axis *axes;
    uint32_t axis_count, axis_room;
    uint8_t *cells, *cells_high; /* for one query: one per axis */
    uint16_t *fine;              /* for one publication: the fine cell per axis, or NOWHERE */
    const Leaf **visited;        /* for one query: the leaves to scan */
    uint64_t (*masks)[BLOCK_WORDS]; /* and which of their records are left */
    uint32_t visited_count;
} Tree;

/* ---- index.c ---- */

typedef struct Cluster {
    uint32_t table, id, hash;
    uint32_t record_count;
    Record *always;
    List **lists;
    uint32_t list_count;
    uint32_t equal_count;
    Tree *tree;
    Term equals[]; /* owned constraints */
} Cluster;

#define TABLE_ATTRIBUTES_MAX 8
#define TABLES_MAX 64
typedef struct {
    uint32_t attribute_count;
    uint32_t attributes[TABLE_ATTRIBUTES_MAX]; /* ascending */
    Hash hash;
    Cluster **clusters;
    uint32_t cluster_count, cluster_room;
    uint32_t *free_ids;
    uint32_t free_count, free_room;
    uint32_t live;
    uint32_t *asked; /* by attribute: records that ask for it beyond the table's equalities */
    uint32_t asked_room;
} Table;

typedef struct {
    PyObject *key;
    Record *record;
    uint32_t next, previous; /* keys of one record form a ring */
    uint32_t hash;
    uint32_t group;
} KeyEntry;
#define KEY_SLAB 1024

/* The name that stood at a place of the publication before, and what it meant. */
typedef struct {
    PyObject *name;
    int64_t attribute;
    uint64_t names_version;
} NamePlace;
#define LAST_NAMES 32

/* Keys that are asked about together: whether any of them matches. */
typedef struct {
    PyObject *object; /* NULL if the place is free */
    uint32_t key_count;
    uint32_t stamp; /* the publication for which it was found last */
} Group;
#define NO_GROUP UINT32_MAX

typedef struct {
    PyObject_HEAD
    PyObject *group_ids; /* group -> id */
    Group *groups;
    uint32_t group_count, group_room, group_live;
    PyObject *attribute_ids; /* name -> id */
    NamePlace last_names[LAST_NAMES];
    uint64_t names_version; /* counts changes of attribute_ids */
    PyObject **names;
    uint32_t *uses;
    uint32_t attribute_count, attribute_room;
    uint32_t *free_attributes;
    uint32_t free_attribute_count;
    Value *values;
    uint32_t stamp;
    Table tables[TABLES_MAX];
    uint32_t table_order[TABLES_MAX]; /* tables with more attributes first */
    uint32_t table_count;
    KeyEntry **key_slabs;
    uint32_t key_slab_count, key_slab_room;
    uint32_t free_key;
    Hash keys;
    Py_ssize_t key_count, record_count;
    uint64_t version;
    /* scratch for one query */
    Record *const **candidates; /* places where records stand (slots, when matching) */
    size_t candidate_count, candidate_room;
    Record **unsure;
    size_t unsure_count, unsure_room;
    Record **found;
    size_t found_count, found_room;
    Prefix *prefixes;
    size_t prefix_count, prefix_room;
} Index;

static inline KeyEntry *key_entry(const Index *index, uint32_t id)
{
    return &index->key_slabs[id / KEY_SLAB][id % KEY_SLAB];
}

/* ---- terms.c ---- */

#define TERMS_MAX 256
int terms_module_init(void);
int read_filter(Index *index, PyObject *filter, Term *terms, int intern); /* count, -1 error; unknown names: attribute = ATTRIBUTES_MAX */
int read_value(Value *value, PyObject *name, PyObject *object);
double text_position(PyObject *text, int fill);
int value_is(const Value *value, const Term *equal);
int term_admits(uint32_t head, double lo, double hi, PyObject *constraint, PyObject *literal, Value *value);
int record_admits(Index *index, const Record *record);
int term_covers(const Term *outer, const Term *inner);
void term_of_record(const Record *record, unsigned number, Term *term);
int terms_cover_record(const Term *outer, int outer_count, const Record *inner);
int record_covers_terms(const Record *outer, const Term *inner, int inner_count);
const Term *term_on(const Term *terms, int count, uint32_t attribute);

/* ---- blocks.c ---- */

Tree *tree_new(void);
void tree_free(Tree *tree);
Record *tree_find(Tree *tree, const Record *like);
void tree_insert(Tree *tree, Record *record);
void tree_remove(const Tree *tree, Record *record);
void tree_match(Index *index, Tree *tree);
void tree_covering(Index *index, Tree *tree, const Term *terms, int count);
void tree_covered(Index *index, Tree *tree, const Term *terms, int count);
void tree_all(Index *index, Tree *tree);
size_t tree_bytes(const Tree *tree);

static inline void push_candidate(Index *index, Record *const *place)
{
    if (index->candidate_count == index->candidate_room) {
        index->candidate_room = index->candidate_room ? index->candidate_room * 2 : 1024;
        index->candidates = GROW(index->candidates, Record *const *, index->candidate_room);
    }
    PREFETCH(place);
    index->candidates[index->candidate_count++] = place;
}

static inline Record *candidate(const Index *index, size_t at) { return *index->candidates[at]; }

static inline void push_record(Record ***records, size_t *count, size_t *room, Record *record)
{
    if (*count == *room) {
        *room = *room ? *room * 2 : 256;
        *records = GROW(*records, Record *, *room);
    }
    (*records)[(*count)++] = record;
}

static inline void push_found(Index *index, Record *record)
{
    push_record(&index->found, &index->found_count, &index->found_room, record);
}

/* A record that has to be read to know whether it matches. */
static inline void push_unsure(Index *index, Record *record)
{
    PREFETCH(record);
    PREFETCH((const char *)record + 64);
    PREFETCH((const char *)record + 128);
    push_record(&index->unsure, &index->unsure_count, &index->unsure_room, record);
}

/* ---- matches.c ---- */

extern PyTypeObject MatchesType;
PyObject *matches_new(Index *index);
PyObject *append_keys(Index *index, PyObject *list, const Record *record);

extern PyTypeObject IndexType;

#endif
