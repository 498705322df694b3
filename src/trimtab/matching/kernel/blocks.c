/* Filters with several predicates: a tree whose leaves hold up to BLOCK records as bitmaps.
 *
 * In a leaf each dimension (attribute and kind) that enough records use has one bitmap row per cell of its axis, plus one for
 * publications without it. A set bit says that the record does not exclude the cell. ANDing one row per dimension leaves the
 * records that may match; their bounds as fine cells settle most of them, the rest are verified. The work is bound by memory,
 * hence the prefetching and the order: first all leaves, then the rows of the next leaf, last all candidates.
 *
 * A full leaf is divided by the dimension that spares the most work: records that do not use it, those in its lower and those
 * in its upper part. The node remembers what each part admits, so that a publication outside skips the whole branch. The way
 * to a leaf depends on the record alone, so that an identical record is found again. */
#include "kernel.h"

enum {
    ROWS_FROM = 48,  /* records from which on bitmaps pay */
    USES_SHARE = 16, /* a dimension has rows if at least one record in sixteen uses it */
    SAMPLE = 63,     /* records looked at for the middle of a dimension */
    LEAF_ROOM_MIN = 4
};

/* ---- records and their terms ---- */

/* The number of the term on a dimension, or -1. */
static int term_number(const Record *record, uint32_t dimension)
{
    const uint32_t *heads = record_heads(record);
    for (unsigned at = 0; at < record->term_count; at++)
        if (dimension_of(head_attribute(heads[at]), head_kind(heads[at])) == dimension)
            return (int)at;
    return -1;
}

static int same_record(const Record *a, const Record *b)
{
    if (a->hash != b->hash || a->term_count != b->term_count || a->has_objects != b->has_objects)
        return 0;
    if (memcmp(record_heads(a), record_heads(b), sizeof(uint32_t) * a->term_count) != 0 ||
        memcmp(record_bounds(a), record_bounds(b), sizeof(double) * 2 * a->term_count) != 0)
        return 0;
    if (a->has_objects)
        for (unsigned at = 0; at < a->term_count; at++) {
            PyObject *left = record_objects(a)[2 * at], *right = record_objects(b)[2 * at];
            if (left == right)
                continue;
            int same = left && right ? PyObject_RichCompareBool(left, right, Py_EQ) : 0;
            if (same < 0)
                PyErr_Clear();
            if (same <= 0)
                return 0;
        }
    return 1;
}

/* ---- axes ---- */

static LeafDimension *find_dimension(const Leaf *leaf, uint32_t dimension)
{
    for (uint32_t place = 0; place < leaf->dimension_count; place++)
        if (leaf->dimension_ids[place] == dimension)
            return &leaf->dimensions[place];
    return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline uint8_t fine_cell_of(const Axis *axis, double x)
{
    unsigned cell = 0;
    for (unsigned step = FINE_CELLS / 2; step > 0; step /= 2)
        cell += axis->edges[cell + step - 1] <= x ? step : 0;
    return (uint8_t)cell;
}

static inline uint8_t cell_of(const Axis *axis, double x) { return fine_cell_of(axis, x) / (FINE_CELLS / CELLS); }

static inline int in_use(const Leaf *leaf, uint32_t slot) { return leaf->active[slot / 64] >> (slot % 64) & 1; }

/* Edges at the quantiles of the bounds that the leaf's records have in this dimension. */
static void place_edges(Axis *axis, const Leaf *leaf)
{
    double bounds[2 * BLOCK];
    size_t count = 0;
    for (uint32_t slot = 0; slot < leaf->highest; slot++) {
        Record *record = in_use(leaf, slot) ? leaf->slots[slot].record : NULL;
        int number = record ? term_number(record, axis->dimension) : -1;
        for (int end = 0; number >= 0 && end < 2; end++) {
            double bound = record_bounds(record)[2 * number + end];
            if (isfinite(bound))
                bounds[count++] = bound;
        }
    }
    qsort(bounds, count, sizeof(double), compare_doubles);
    for (size_t edge = 0; edge < FINE_CELLS - 1; edge++)
        axis->edges[edge] = count ? bounds[(edge + 1) * count / FINE_CELLS] : 0;
}

/* The number of the dimension's axis, -1 if it has none yet. */
static int find_axis(const Tree *tree, uint32_t dimension)
{
    for (uint32_t at = 0; at < tree->axis_count; at++)
        if (tree->axes[at].dimension == dimension)
            return (int)at;
    return -1;
}

static inline uint64_t *axis_users(const Axis *axis, const Leaf *leaf)
{
    return axis->users + (size_t)leaf->index * BLOCK_WORDS;
}

static uint32_t axis_for(Tree *tree, uint32_t dimension, const Leaf *leaf)
{
    int known = find_axis(tree, dimension);
    if (known >= 0)
        return (uint32_t)known;
    if (tree->axis_count == tree->axis_room) {
        tree->axis_room = tree->axis_room ? tree->axis_room * 2 : 8;
        tree->axes = GROW(tree->axes, Axis, tree->axis_room);
        tree->cells = GROW(tree->cells, uint8_t, tree->axis_room);
        tree->cells_high = GROW(tree->cells_high, uint8_t, tree->axis_room);
        tree->fine = GROW(tree->fine, uint16_t, tree->axis_room);
    }
    Axis *axis = &tree->axes[tree->axis_count];
    axis->dimension = dimension;
    axis->users = NEW_ZEROED(uint64_t, (size_t)tree->leaf_room * BLOCK_WORDS);
    place_edges(axis, leaf);
    for (uint32_t at = 0; at < tree->leaf_count; at++) {
        const LeafDimension *used = find_dimension(tree->leaves[at], dimension);
        if (used != NULL)
            memcpy(axis_users(axis, tree->leaves[at]), used->users, sizeof used->users);
    }
    return tree->axis_count++;
}

/* ---- leaves ---- */

static Leaf *leaf_new(Tree *tree)
{
    Leaf *leaf = NEW_ZEROED(Leaf, 1);
    if (tree->leaf_count == tree->leaf_room) {
        tree->leaf_room = tree->leaf_room ? tree->leaf_room * 2 : 1;
        tree->leaves = GROW(tree->leaves, Leaf *, tree->leaf_room);
        tree->visited = GROW(tree->visited, const Leaf *, tree->leaf_room);
        tree->masks = must(realloc(tree->masks, sizeof *tree->masks * tree->leaf_room));
        for (uint32_t at = 0; at < tree->axis_count; at++)
            tree->axes[at].users = GROW(tree->axes[at].users, uint64_t, (size_t)tree->leaf_room * BLOCK_WORDS);
    }
    leaf->index = tree->leaf_count;
    for (uint32_t at = 0; at < tree->axis_count; at++)
        memset(axis_users(&tree->axes[at], leaf), 0, sizeof leaf->active);
    tree->leaves[tree->leaf_count++] = leaf;
    return leaf;
}

static void leaf_clear(Leaf *leaf)
{
    free(leaf->rows);
    free(leaf->dimension_ids);
    free(leaf->dimensions);
    free(leaf->slots);
    free(leaf->marks);
    uint32_t index = leaf->index;
    memset(leaf, 0, sizeof *leaf);
    leaf->index = index;
}

static void leaf_free(Tree *tree, Leaf *leaf)
{
    Leaf *last = tree->leaves[--tree->leaf_count];
    for (uint32_t at = 0; at < tree->axis_count; at++)
        memmove(axis_users(&tree->axes[at], leaf), axis_users(&tree->axes[at], last), sizeof leaf->active);
    last->index = leaf->index;
    tree->leaves[leaf->index] = last;
    leaf_clear(leaf);
    free(leaf);
}

static inline uint64_t *row_words(const Leaf *leaf, uint32_t row, unsigned cell)
{
    return leaf->rows + (size_t)(row * ROWS + cell) * leaf->words;
}

static void write_bits(const Tree *tree, Leaf *leaf, uint32_t row, uint32_t slot, const double *bounds)
{
    const Axis *axis = &tree->axes[leaf->row_axes[row]];
    unsigned first = cell_of(axis, bounds[0]), last = cell_of(axis, bounds[1]);
    uint64_t bit = 1ull << slot % 64;
    for (unsigned cell = 0; cell < ROWS; cell++)
        if (cell < first || cell > last)
            row_words(leaf, row, cell)[slot / 64] &= ~bit;
}

static void fill_rows(const Tree *tree, Leaf *leaf, uint32_t row)
{
    uint32_t dimension = tree->axes[leaf->row_axes[row]].dimension;
    memset(row_words(leaf, row, 0), 255, sizeof(uint64_t) * ROWS * leaf->words);
    for (uint32_t slot = 0; slot < leaf->highest; slot++) {
        Record *record = in_use(leaf, slot) ? leaf->slots[slot].record : NULL;
        int number = record ? term_number(record, dimension) : -1;
        if (number >= 0)
            write_bits(tree, leaf, row, slot, record_bounds(record) + 2 * number);
    }
}

static uint64_t *rows_resized(uint64_t *rows, const Leaf *leaf)
{
    return GROW(rows, uint64_t, (size_t)leaf->row_count * ROWS * leaf->words);
}

static void fill_slot(const Tree *tree, Slot *slot)
{
    const Record *record = slot->record;
    slot->count = slot->open = 0;
    for (unsigned number = 0; number < record->term_count; number++) {
        uint32_t head = record_heads(record)[number];
        int axis = find_axis(tree, dimension_of(head_attribute(head), head_kind(head)));
        if (head_kind(head) == STR || head_flags(head) & VERIFY || axis < 0 || slot->count == SLOT_TERMS)
            slot->open = 1;
        if (axis < 0 || slot->count == SLOT_TERMS)
            continue;
        slot->axes[slot->count] = (uint8_t)axis;
        slot->lo[slot->count] = fine_cell_of(&tree->axes[axis], record_bounds(record)[2 * number]);
        slot->hi[slot->count++] = fine_cell_of(&tree->axes[axis], record_bounds(record)[2 * number + 1]);
    }
}

static void build_rows(Tree *tree, Leaf *leaf, uint32_t place)
{
    if (leaf->row_count == ROW_DIMENSIONS_MAX || tree->axis_count == AXES_MAX)
        return;
    uint32_t row = leaf->row_count++, axes_before = tree->axis_count;
    leaf->row_axes[row] = (uint8_t)axis_for(tree, leaf->dimension_ids[place], leaf);
    leaf->rows = rows_resized(leaf->rows, leaf);
    leaf->dimensions[place].row = (int32_t)row;
    fill_rows(tree, leaf, row);
    for (uint32_t slot = 0; tree->axis_count > axes_before && slot < leaf->highest; slot++)
        if (in_use(leaf, slot))
            fill_slot(tree, &leaf->slots[slot]);
}

static void build_wanted_rows(Tree *tree, Leaf *leaf)
{
    if (leaf->count < ROWS_FROM)
        return;
    for (uint32_t place = 0; place < leaf->dimension_count; place++)
        if (leaf->dimensions[place].row < 0 && leaf->dimensions[place].uses * USES_SHARE >= leaf->count)
            build_rows(tree, leaf, place);
}

static LeafDimension *leaf_dimension(Leaf *leaf, uint32_t dimension)
{
    LeafDimension *found = find_dimension(leaf, dimension);
    if (found != NULL)
        return found;
    if (leaf->dimension_count == leaf->dimension_room) {
        leaf->dimension_room = leaf->dimension_room ? leaf->dimension_room * 2 : 2;
        leaf->dimension_ids = GROW(leaf->dimension_ids, uint32_t, leaf->dimension_room);
        leaf->dimensions = GROW(leaf->dimensions, LeafDimension, leaf->dimension_room);
    }
    leaf->dimension_ids[leaf->dimension_count] = dimension;
    leaf->dimensions[leaf->dimension_count] = (LeafDimension){.row = -1};
    return &leaf->dimensions[leaf->dimension_count++];
}

static uint32_t free_slot(const Leaf *leaf)
{
    uint32_t word = 0;
    while (~leaf->active[word] == 0)
        word++; /* a full leaf is divided before */
    return word * 64 + (uint32_t)LOWEST_BIT(~leaf->active[word]);
}

static void grow_leaf(const Tree *tree, Leaf *leaf)
{
    leaf->room = leaf->room ? leaf->room * 2 : LEAF_ROOM_MIN;
    leaf->slots = GROW(leaf->slots, Slot, leaf->room);
    leaf->marks = GROW(leaf->marks, uint16_t, leaf->room);
    uint32_t words = (leaf->room + 63) / 64;
    if (words == leaf->words)
        return;
    leaf->words = words;
    leaf->rows = leaf->row_count ? rows_resized(leaf->rows, leaf) : NULL;
    for (uint32_t row = 0; row < leaf->row_count; row++)
        fill_rows(tree, leaf, row);
}

static uint32_t record_dimension(const Record *record, unsigned number)
{
    uint32_t head = record_heads(record)[number];
    return dimension_of(head_attribute(head), head_kind(head));
}

static void leaf_insert(Tree *tree, Leaf *leaf, Record *record)
{
    uint32_t slot = free_slot(leaf);
    if (slot >= leaf->room)
        grow_leaf(tree, leaf);
    uint64_t bit = 1ull << slot % 64;
    leaf->active[slot / 64] |= bit;
    leaf->slots[slot].record = record;
    fill_slot(tree, &leaf->slots[slot]);
    leaf->marks[slot] = (uint16_t)record->hash;
    leaf->count++;
    leaf->highest = slot + 1 > leaf->highest ? slot + 1 : leaf->highest;
    record->home = leaf;
    record->slot = (uint16_t)slot;
    record->place = IN_LEAF;
    for (unsigned number = 0; number < record->term_count; number++) {
        LeafDimension *dimension = leaf_dimension(leaf, record_dimension(record, number));
        dimension->uses++;
        dimension->users[slot / 64] |= bit;
        int axis = find_axis(tree, record_dimension(record, number));
        if (axis >= 0)
            axis_users(&tree->axes[axis], leaf)[slot / 64] |= bit;
        if (dimension->row >= 0)
            write_bits(tree, leaf, (uint32_t)dimension->row, slot, record_bounds(record) + 2 * number);
        else if (leaf->count > ROWS_FROM && dimension->uses * USES_SHARE >= leaf->count)
            build_rows(tree, leaf, (uint32_t)(dimension - leaf->dimensions));
    }
    if (leaf->count == ROWS_FROM)
        build_wanted_rows(tree, leaf);
}

static void leaf_remove(const Tree *tree, Leaf *leaf, const Record *record)
{
    uint32_t slot = record->slot;
    uint64_t bit = 1ull << slot % 64;
    leaf->active[slot / 64] &= ~bit;
    for (unsigned number = 0; number < record->term_count; number++) {
        LeafDimension *dimension = find_dimension(leaf, record_dimension(record, number));
        int axis = find_axis(tree, record_dimension(record, number));
        dimension->uses--;
        dimension->users[slot / 64] &= ~bit;
        if (axis >= 0)
            axis_users(&tree->axes[axis], leaf)[slot / 64] &= ~bit;
        for (unsigned cell = 0; dimension->row >= 0 && cell < ROWS; cell++)
            row_words(leaf, (uint32_t)dimension->row, cell)[slot / 64] |= bit;
    }
    if (--leaf->count == 0)
        leaf_clear(leaf);
}

/* ---- the way to a leaf, and dividing a full one ---- */

/* One number that stands for an interval; it lies inside. */
static double anchor(const double *bounds)
{
    if (isinf(bounds[0]))
        return isinf(bounds[1]) ? 0 : bounds[1];
    if (isinf(bounds[1]))
        return bounds[0];
    double middle = bounds[0] / 2 + bounds[1] / 2;
    return middle < bounds[0] ? bounds[0] : middle > bounds[1] ? bounds[1] : middle;
}

static unsigned branch(const Node *node, const Record *record, const double **bounds)
{
    *bounds = NULL;
    if (node->hash_bit)
        return record->hash >> (node->hash_bit - 1) & 1;
    int number = term_number(record, node->dimension);
    if (number < 0)
        return 0;
    *bounds = record_bounds(record) + 2 * number;
    return anchor(*bounds) < node->threshold ? 1 : 2;
}

static void widen(double *lo, double *hi, const double *bounds)
{
    *lo = bounds[0] < *lo ? bounds[0] : *lo;
    *hi = bounds[1] > *hi ? bounds[1] : *hi;
}

static Node *node_new(Leaf *leaf)
{
    Node *node = NEW_ZEROED(Node, 1);
    node->leaf = leaf;
    return node;
}

/* The node whose leaf is the record's place, NULL if it has none yet and none is to be made. */
static Node *way_to_leaf(Tree *tree, const Record *record, int make)
{
    Node *node = tree->root;
    while (node->leaf == NULL) {
        const double *bounds;
        unsigned side = branch(node, record, &bounds);
        if (node->children[side] == NULL) {
            if (!make)
                return NULL;
            node->children[side] = node_new(leaf_new(tree));
        }
        if (make && bounds != NULL)
            widen(&node->lo[side], &node->hi[side], bounds);
        node = node->children[side];
    }
    return node;
}

/* The share of publications that the interval may concern. */
static double span(const Axis *axis, double lo, double hi)
{
    return (fine_cell_of(axis, hi) - fine_cell_of(axis, lo) + 1) / (double)FINE_CELLS;
}

/* The middle of a sample of the anchors in one dimension. */
static double sampled_median(const Leaf *leaf, uint32_t dimension)
{
    double anchors[SAMPLE + 1];
    size_t taken = 0;
    for (uint32_t slot = 0; slot < BLOCK; slot += BLOCK / SAMPLE + 1) {
        int number = term_number(leaf->slots[slot].record, dimension);
        if (number >= 0)
            anchors[taken++] = anchor(record_bounds(leaf->slots[slot].record) + 2 * number);
    }
    qsort(anchors, taken, sizeof(double), compare_doubles);
    return taken ? anchors[taken / 2] : 0;
}

/* How much scanning is left per publication if a full leaf is divided this way; above BLOCK if that is no division. */
static double cost_of_division(const Axis *axis, const Leaf *leaf, Node *way)
{
    uint32_t sizes[3] = {0, 0, 0};
    double all_lo = INFINITY, all_hi = -INFINITY;
    for (unsigned side = 0; side < 3; side++) {
        way->lo[side] = INFINITY;
        way->hi[side] = -INFINITY;
    }
    for (uint32_t slot = 0; slot < BLOCK; slot++) {
        const double *bounds;
        unsigned side = branch(way, leaf->slots[slot].record, &bounds);
        sizes[side]++;
        if (bounds != NULL) {
            widen(&way->lo[side], &way->hi[side], bounds);
            widen(&all_lo, &all_hi, bounds);
        }
    }
    double before = sizes[0] ? 1 : span(axis, all_lo, all_hi), cost = sizes[0];
    for (unsigned side = 0; side < 3; side++) {
        if (sizes[side] * 10 > BLOCK * 9)
            return 2.0 * BLOCK;
        if (side && sizes[side])
            cost += sizes[side] * span(axis, way->lo[side], way->hi[side]) / before;
    }
    return cost;
}

static void choose_division(const Tree *tree, const Leaf *leaf, Node *node)
{
    double best = 0.98 * BLOCK;
    int found = 0;
    for (uint32_t row = 0; row < leaf->row_count; row++) {
        const Axis *axis = &tree->axes[leaf->row_axes[row]];
        Node way = {.dimension = axis->dimension, .threshold = sampled_median(leaf, axis->dimension)};
        double cost = cost_of_division(axis, leaf, &way);
        if (cost < best) {
            best = cost;
            *node = way;
            found = 1;
        }
    }
    if (found)
        return;
    uint32_t evenest = 0, best_gap = BLOCK;
    for (uint32_t bit = 1; bit <= 32; bit++) {
        uint32_t ones = 0;
        for (uint32_t slot = 0; slot < BLOCK; slot++)
            ones += leaf->slots[slot].record->hash >> (bit - 1) & 1;
        uint32_t gap = 2 * ones > BLOCK ? 2 * ones - BLOCK : BLOCK - 2 * ones;
        if (gap < best_gap) {
            best_gap = gap;
            evenest = bit;
        }
    }
    if (evenest == 0)
        Py_FatalError("trimtab: too many different filters with one hash");
    *node = (Node){.hash_bit = evenest};
}

static void divide(Tree *tree, Node *node)
{
    Leaf *leaf = node->leaf;
    if (tree->leaf_count == 1)
        for (uint32_t at = 0; at < tree->axis_count; at++)
            place_edges(&tree->axes[at], leaf);
    choose_division(tree, leaf, node);
    for (uint32_t slot = 0; slot < BLOCK; slot++) {
        const double *bounds;
        Node **child = &node->children[branch(node, leaf->slots[slot].record, &bounds)];
        if (*child == NULL)
            *child = node_new(leaf_new(tree));
        leaf_insert(tree, (*child)->leaf, leaf->slots[slot].record);
    }
    leaf_free(tree, leaf);
}

/* ---- the tree ---- */

Tree *tree_new(void)
{
    Tree *tree = NEW_ZEROED(Tree, 1);
    tree->root = node_new(leaf_new(tree));
    return tree;
}

static void node_free(Node *node)
{
    if (node == NULL)
        return;
    for (unsigned side = 0; side < 3; side++)
        node_free(node->children[side]);
    free(node);
}

void tree_free(Tree *tree)
{
    node_free(tree->root);
    for (uint32_t at = 0; at < tree->leaf_count; at++) {
        leaf_clear(tree->leaves[at]);
        free(tree->leaves[at]);
    }
    free(tree->leaves);
    for (uint32_t at = 0; at < tree->axis_count; at++)
        free(tree->axes[at].users);
    free(tree->visited);
    free(tree->masks);
    free(tree->axes);
    free(tree->cells);
    free(tree->cells_high);
    free(tree->fine);
    free(tree);
}

static WIDE uint32_t marked_slot(const Leaf *leaf, uint16_t mark, uint32_t from)
{
    while (from < leaf->highest && leaf->marks[from] != mark)
        from++;
    return from;
}

/* The stored record that asks for the same, or NULL. */
Record *tree_find(Tree *tree, const Record *like)
{
    const Node *node = way_to_leaf(tree, like, 0);
    const Leaf *leaf = node ? node->leaf : NULL;
    for (uint32_t slot = 0; leaf && (slot = marked_slot(leaf, (uint16_t)like->hash, slot)) < leaf->highest; slot++)
        if (in_use(leaf, slot) && same_record(leaf->slots[slot].record, like))
            return leaf->slots[slot].record;
    return NULL;
}

void tree_insert(Tree *tree, Record *record)
{
    Node *node = way_to_leaf(tree, record, 1);
    while (node->leaf->count == BLOCK) {
        divide(tree, node);
        node = way_to_leaf(tree, record, 1);
    }
    leaf_insert(tree, node->leaf, record);
}

void tree_remove(const Tree *tree, Record *record) { leaf_remove(tree, record->home, record); }

/* ---- questions: which leaves, which of their records ---- */

static inline void visit(Tree *tree, const Node *node)
{
    if (node->leaf->count == 0)
        return;
    PREFETCH(node->leaf);
    PREFETCH((const char *)node->leaf + 64);
    tree->visited[tree->visited_count++] = node->leaf;
}

static void push_active(Index *index, const Leaf *leaf, const uint64_t *mask)
{
    for (uint32_t word = 0; word < leaf->words; word++)
        for (uint64_t bits = mask[word]; bits; bits &= bits - 1)
            push_candidate(index, &leaf->slots[word * 64 + (uint32_t)LOWEST_BIT(bits)].record);
}

/* Four words of a row at once. */
typedef uint64_t Wide4 __attribute__((vector_size(32), aligned(8), may_alias));

static inline uint64_t and_words(uint64_t *restrict mask, const uint64_t *restrict row, uint32_t words)
{
    uint64_t left = 0;
    for (unsigned word = 0; word < words; word++)
        left |= mask[word] &= row[word];
    return left;
}

static inline uint64_t and_not_words(uint64_t *restrict mask, const uint64_t *restrict row, uint32_t words)
{
    uint64_t left = 0;
    for (unsigned word = 0; word < words; word++)
        left |= mask[word] &= ~row[word];
    return left;
}

/* The place of a publication's value on a dimension, NULL if it has none there. */
static inline const double *place_of(const Index *index, uint32_t dimension)
{
    static const double present = 0;
    Value *value = &index->values[dimension >> 2];
    if (value->stamp != index->stamp)
        return NULL;
    if ((dimension & 3) == ANY)
        return &present;
    if (value->kind != (dimension & 3))
        return NULL;
    if (!value->placed) {
        value->x = text_position(value->object, 0);
        value->placed = 1;
    }
    return &value->x;
}

static void visit_for_match(const Index *index, Tree *tree, const Node *node)
{
    while (node != NULL) {
        if (node->leaf != NULL) {
            visit(tree, node);
            return;
        }
        const double *x = node->hash_bit ? NULL : place_of(index, node->dimension);
        if (node->hash_bit)
            visit_for_match(index, tree, node->children[1]);
        for (unsigned side = 1; side < 3 && x != NULL; side++)
            if (node->lo[side] <= *x && *x <= node->hi[side])
                visit_for_match(index, tree, node->children[side]);
        node = node->children[0];
    }
}

static inline void prefetch_rows(const Leaf *leaf, const uint8_t *cells)
{
    for (uint32_t row = 0; row < leaf->row_count; row++) {
        const uint64_t *words = row_words(leaf, row, cells[leaf->row_axes[row]]);
        for (uint32_t word = 0; word < leaf->words; word += 8)
            PREFETCH(words + word);
    }
}

/* Which records of a leaf the publication's cells leave. No branch depends on the rows, so that many loads are under way. */
static inline void mask_for_match(const Leaf *leaf, const uint8_t *cells, uint64_t *mask)
{
    if (leaf->words == BLOCK_WORDS) {
        Wide4 left[BLOCK_WORDS / 4];
        memcpy(left, leaf->active, sizeof left);
        for (uint32_t row = 0; row < leaf->row_count; row++) {
            const Wide4 *words = (const Wide4 *)(leaf->rows + (row * ROWS + cells[leaf->row_axes[row]]) * BLOCK_WORDS);
            for (unsigned part = 0; part < BLOCK_WORDS / 4; part++)
                left[part] &= words[part];
        }
        memcpy(mask, left, sizeof left);
        return;
    }
    memcpy(mask, leaf->active, sizeof leaf->active);
    for (uint32_t row = 0; row < leaf->row_count; row++)
        and_words(mask, row_words(leaf, row, cells[leaf->row_axes[row]]), leaf->words);
}

static WIDE void scan_for_match(Tree *tree)
{
    enum { AHEAD = 2 };
    for (uint32_t at = 0; at < tree->visited_count + AHEAD; at++) {
        if (at < tree->visited_count)
            prefetch_rows(tree->visited[at], tree->cells);
        if (at >= AHEAD)
            mask_for_match(tree->visited[at - AHEAD], tree->cells, tree->masks[at - AHEAD]);
    }
}

/* Settle a candidate by fine cells: strictly inside everywhere it matches, outside anywhere it does not. */
static inline void settle(Index *index, const uint16_t *fine, const Slot *slot)
{
    int outside = 0, unsure = slot->open;
    for (unsigned at = 0; at < slot->count; at++) {
        unsigned cell = fine[slot->axes[at]];
        outside |= cell < slot->lo[at] || cell > slot->hi[at]; /* nowhere is above all */
        unsure |= cell == slot->lo[at] || cell == slot->hi[at];
    }
    if (outside)
        return;
    if (unsure)
        push_unsure(index, slot->record);
    else
        push_found(index, slot->record);
}

void tree_match(Index *index, Tree *tree)
{
    for (uint32_t at = 0; at < tree->axis_count; at++) {
        const double *x = place_of(index, tree->axes[at].dimension);
        tree->fine[at] = x ? fine_cell_of(&tree->axes[at], *x) : NOWHERE;
        tree->cells[at] = (uint8_t)(tree->fine[at] / (FINE_CELLS / CELLS)); /* nowhere becomes ABSENT */
    }
    tree->visited_count = 0;
    visit_for_match(index, tree, tree->root);
    scan_for_match(tree);
    index->candidate_count = 0;
    for (uint32_t at = 0; at < tree->visited_count; at++)
        push_active(index, tree->visited[at], tree->masks[at]);
    for (size_t at = 0; at < index->candidate_count; at++)
        settle(index, tree->fine, (const Slot *)(const void *)index->candidates[at]);
}

/* Have the dimensions of a leaf at hand that is looked at soon. */
static inline void prefetch_dimensions(const Tree *tree, uint32_t at)
{
    enum { SOON = 4, LINES = 6 };
    if (at + 2 * SOON < tree->visited_count)
        PREFETCH(tree->visited[at + 2 * SOON]->dimension_ids);
    if (at + SOON < tree->visited_count) {
        const Leaf *leaf = tree->visited[at + SOON];
        for (unsigned line = 0; line < LINES; line++)
            PREFETCH((const char *)leaf->dimensions + 64 * line);
    }
}

/* The filter's term that a stored term on this dimension would have to cover; NULL if it has none. */
static const Term *term_in(const Term *terms, int count, uint32_t dimension)
{
    const Term *term = term_on(terms, count, dimension >> 2);
    return term && ((dimension & 3) == ANY || term->kind == (dimension & 3)) ? term : NULL;
}

/* Whether the term's interval may be compared with those of the dimension. */
static int comparable(const Term *term, uint32_t dimension) { return (dimension & 3) != ANY && !(term->flags & LOOSE); }

static void visit_for_covering(Tree *tree, const Node *node, const Term *terms, int count)
{
    while (node != NULL) {
        if (node->leaf != NULL) {
            visit(tree, node);
            return;
        }
        if (node->hash_bit)
            visit_for_covering(tree, node->children[1], terms, count);
        const Term *term = node->hash_bit ? NULL : term_in(terms, count, node->dimension);
        for (unsigned side = 1; side < 3 && term != NULL; side++)
            if (!comparable(term, node->dimension) || (node->lo[side] <= term->lo && node->hi[side] >= term->hi))
                visit_for_covering(tree, node->children[side], terms, count);
        node = node->children[0];
    }
}

/* Records that may cover the terms: they use no dimension that the terms lack and reach around their intervals. */
void tree_covering(Index *index, Tree *tree, const Term *terms, int count)
{
    enum { NO_HINT = 255 };
    for (uint32_t at = 0; at < tree->axis_count; at++) {
        const Axis *axis = &tree->axes[at];
        const Term *term = term_in(terms, count, axis->dimension);
        tree->cells[at] = tree->cells_high[at] = NO_HINT;
        if (term && comparable(term, axis->dimension)) {
            tree->cells[at] = cell_of(axis, term->lo);
            tree->cells_high[at] = cell_of(axis, term->hi);
        }
    }
    tree->visited_count = 0;
    visit_for_covering(tree, tree->root, terms, count);
    for (uint32_t at = 0; at < tree->visited_count; at++) {
        const Leaf *leaf = tree->visited[at];
        uint64_t mask[BLOCK_WORDS], left = 1;
        prefetch_dimensions(tree, at);
        memcpy(mask, leaf->active, sizeof mask);
        for (uint32_t place = 0; place < leaf->dimension_count && left; place++) {
            if (term_in(terms, count, leaf->dimension_ids[place]) == NULL)
                left = and_not_words(mask, leaf->dimensions[place].users, leaf->words);
        }
        for (uint32_t row = 0; row < leaf->row_count && left; row++) {
            unsigned low = tree->cells[leaf->row_axes[row]], high = tree->cells_high[leaf->row_axes[row]];
            if (low == NO_HINT)
                continue;
            left = and_words(mask, row_words(leaf, row, low), leaf->words);
            if (high != low)
                left = and_words(mask, row_words(leaf, row, high), leaf->words);
        }
        if (left)
            push_active(index, leaf, mask);
    }
}

static void visit_for_covered(Tree *tree, const Node *node, const Term *terms, int count)
{
    while (node != NULL) {
        if (node->leaf != NULL) {
            visit(tree, node);
            return;
        }
        const Term *term = node->hash_bit ? NULL : term_on(terms, count, node->dimension >> 2);
        if (node->hash_bit)
            visit_for_covered(tree, node->children[1], terms, count);
        else if (term == NULL || term->kind == ANY) {
            visit_for_covered(tree, node->children[1], terms, count);
            visit_for_covered(tree, node->children[2], terms, count);
        }
        else if (term->kind == (node->dimension & 3)) {
            /* Covered records use the dimension; those of numbers have their anchor inside the term's interval. */
            int numbers = term->kind == NUM;
            if (!numbers || term->lo < node->threshold)
                visit_for_covered(tree, node->children[1], terms, count);
            if (!numbers || term->hi >= node->threshold)
                visit_for_covered(tree, node->children[2], terms, count);
            return;
        }
        node = node->children[0];
    }
}

/* What a question for covered records asks in one dimension. */
typedef struct {
    const Term *term;
    const Axis *axis;         /* NULL if the dimension has none */
    unsigned below, above;    /* the cells beside the term's interval, NO_CELL at the ends and for all but numbers */
} Inside;
enum { NO_CELL = 255 };

/* Records of the leaf that use every dimension asked for and do not reach into the cells beside the intervals. Only intervals
 * of numbers are sharp enough to rule a record out by these. */
static uint64_t mask_for_covered(const Leaf *leaf, const Inside *asked, int count, uint64_t *mask)
{
    uint64_t left = 1;
    memcpy(mask, leaf->active, sizeof leaf->active);
    for (int at = 0; at < count && left; at++) {
        const Term *term = asked[at].term;
        const LeafDimension *used =
            asked[at].axis ? NULL : find_dimension(leaf, dimension_of(term->attribute, term->kind));
        const uint64_t *users = asked[at].axis ? axis_users(asked[at].axis, leaf) : used ? used->users : NULL;
        left = users ? and_words(mask, users, leaf->words) : 0;
    }
    for (int at = 0; at < count && left; at++) {
        if (asked[at].below == NO_CELL && asked[at].above == NO_CELL)
            continue;
        const LeafDimension *used = find_dimension(leaf, asked[at].axis->dimension);
        if (used->row < 0)
            continue;
        if (asked[at].below != NO_CELL)
            left = and_not_words(mask, row_words(leaf, (uint32_t)used->row, asked[at].below), leaf->words);
        if (asked[at].above != NO_CELL && left)
            left = and_not_words(mask, row_words(leaf, (uint32_t)used->row, asked[at].above), leaf->words);
    }
    return left;
}

void tree_covered(Index *index, Tree *tree, const Term *terms, int count)
{
    Inside asked[TERMS_MAX];
    int asked_count = 0;
    for (int at = 0; at < count; at++) {
        if (terms[at].kind == ANY)
            continue;
        int number = find_axis(tree, dimension_of(terms[at].attribute, terms[at].kind));
        const Axis *axis = number < 0 ? NULL : &tree->axes[number];
        Inside inside = {&terms[at], axis, NO_CELL, NO_CELL};
        if (axis != NULL && terms[at].kind == NUM) {
            unsigned first = cell_of(axis, terms[at].lo), last = cell_of(axis, terms[at].hi);
            inside.below = first > 0 ? first - 1 : NO_CELL;
            inside.above = last < CELLS - 1 ? last + 1 : NO_CELL;
        }
        asked[asked_count++] = inside;
    }
    tree->visited_count = 0;
    visit_for_covered(tree, tree->root, terms, count);
    for (uint32_t at = 0; at < tree->visited_count; at++) {
        uint64_t mask[BLOCK_WORDS];
        if (mask_for_covered(tree->visited[at], asked, asked_count, mask))
            push_active(index, tree->visited[at], mask);
    }
}

void tree_all(Index *index, Tree *tree)
{
    for (uint32_t at = 0; at < tree->leaf_count; at++)
        push_active(index, tree->leaves[at], tree->leaves[at]->active);
}

size_t tree_bytes(const Tree *tree)
{
    size_t bytes = sizeof *tree + sizeof(Axis) * tree->axis_room + sizeof(void *) * 2 * tree->leaf_room;
    for (uint32_t at = 0; at < tree->leaf_count; at++) {
        const Leaf *leaf = tree->leaves[at];
        bytes += sizeof *leaf + sizeof(Node) * 3 / 2 + leaf->room * (sizeof(Slot) + sizeof(uint16_t)) +
                 leaf->dimension_room * (sizeof(LeafDimension) + sizeof(uint32_t)) + leaf->row_count * sizeof(uint64_t) * ROWS * leaf->words +
                 tree->axis_count * sizeof leaf->active;
    }
    return bytes;
}
