/* The index: equality tables, clusters and keys; adding, removing and the three questions. */
#include "kernel.h"

static PyObject *str_values_by_name;

/* ---- attributes ---- */

static void release_attribute(Index *index, uint32_t attribute)
{
    if (index->uses[attribute] > 0 || index->names[attribute] == NULL)
        return;
    if (PyDict_DelItem(index->attribute_ids, index->names[attribute]) < 0)
        PyErr_Clear();
    Py_CLEAR(index->names[attribute]);
    index->values[attribute].stamp = 0;
    index->names_version++;
    index->free_attributes[index->free_attribute_count++] = attribute;
}

static void drop_use(Index *index, uint32_t attribute)
{
    index->uses[attribute]--;
    release_attribute(index, attribute);
}

/* ---- equality tables and clusters ---- */

typedef struct {
    const Term *terms;
    int count;
} Terms;

static uint32_t fold(uint64_t hash) { return (uint32_t)(hash ^ hash >> 32); }

static uint32_t cluster_code(const void *context, uint32_t id) { return ((const Table *)context)->clusters[id]->hash; }

static uint64_t equal_hash(const Term *term)
{
    Value value = {0};
    PyObject *number = NULL;
    if (term->kind == STR)
        read_value(&value, Py_None, term->literal);
    else if (term->kind == BOOL)
        read_value(&value, Py_None, term->lo ? Py_True : Py_False);
    else if ((number = PyFloat_FromDouble(term->lo)) != NULL) {
        read_value(&value, Py_None, number);
        Py_DECREF(number);
    }
    return value.hash;
}

static int same_equals(const Term *a, const Term *b)
{
    if (a->kind != b->kind)
        return 0;
    if (a->kind == STR)
        return a->literal == b->literal || PyUnicode_Compare(a->literal, b->literal) == 0;
    return a->lo == b->lo;
}

static int cluster_has_terms(const void *context, uint32_t id, const void *wanted)
{
    const Cluster *cluster = ((const Table *)context)->clusters[id];
    const Terms *terms = wanted;
    for (uint32_t at = 0; at < cluster->equal_count; at++) {
        const Term *term = term_on(terms->terms, terms->count, cluster->equals[at].attribute);
        if (!same_equals(&cluster->equals[at], term))
            return 0;
    }
    return 1;
}

static int cluster_has_values(const void *context, uint32_t id, const void *wanted)
{
    const Cluster *cluster = ((const Table *)context)->clusters[id];
    const Value *values = wanted;
    for (uint32_t at = 0; at < cluster->equal_count; at++)
        if (!value_is(&values[cluster->equals[at].attribute], &cluster->equals[at]))
            return 0;
    return 1;
}

/* Find the cluster of a table for the equalities among the terms; NULL if there is none. */
static Cluster *cluster_for_terms(const Table *table, const Term *terms, int count, uint32_t *code)
{
    uint64_t hash = 0;
    for (uint32_t at = 0; at < table->attribute_count; at++)
        hash = mix(hash ^ equal_hash(term_on(terms, count, table->attributes[at])));
    *code = fold(hash);
    Terms wanted = {terms, count};
    uint32_t id;
    return hash_find(&table->hash, *code, cluster_has_terms, table, &wanted, &id) == 1 ? table->clusters[id] : NULL;
}

static int table_fits(const Table *table, const Term *terms, int count)
{
    for (uint32_t at = 0; at < table->attribute_count; at++) {
        const Term *term = term_on(terms, count, table->attributes[at]);
        if (term == NULL || !(term->flags & EQUAL))
            return 0;
    }
    return 1;
}

static void order_tables(Index *index)
{
    for (uint32_t at = 0; at < index->table_count; at++) {
        uint32_t place = at;
        for (; place > 0 && index->tables[index->table_order[place - 1]].attribute_count < index->tables[at].attribute_count;
             place--)
            index->table_order[place] = index->table_order[place - 1];
        index->table_order[place] = at;
    }
}

/* The table for a filter's equalities: their own, a new one, or the largest that fits if there are too many. Table 0 has no
 * attributes and fits all. */
static uint32_t table_for(Index *index, const Term *terms, int count)
{
    uint32_t attributes[TABLE_ATTRIBUTES_MAX], wanted = 0, best = 0, unused = 0;
    for (int at = 0; at < count && wanted < TABLE_ATTRIBUTES_MAX; at++)
        if (terms[at].flags & EQUAL)
            attributes[wanted++] = terms[at].attribute;
    for (uint32_t at = 0; at < index->table_count; at++) {
        const Table *table = &index->tables[at];
        if (at > 0 && table->live == 0)
            unused = at;
        if (!table_fits(table, terms, count))
            continue;
        if (table->attribute_count == wanted)
            return at;
        if (table->attribute_count > index->tables[best].attribute_count)
            best = at;
    }
    if (unused == 0 && index->table_count == TABLES_MAX)
        return best;
    if (unused == 0)
        unused = index->table_count++;
    Table *table = &index->tables[unused];
    table->attribute_count = wanted;
    memcpy(table->attributes, attributes, sizeof(uint32_t) * wanted);
    order_tables(index);
    return unused;
}

static Cluster *cluster_new(Index *index, uint32_t table_number, const Term *terms, int count, uint32_t code)
{
    Table *table = &index->tables[table_number];
    Cluster *cluster = must(calloc(1, sizeof(Cluster) + sizeof(Term) * table->attribute_count));
    cluster->table = table_number;
    cluster->hash = code;
    cluster->equal_count = table->attribute_count;
    for (uint32_t at = 0; at < table->attribute_count; at++) {
        Term term = *term_on(terms, count, table->attributes[at]);
        Py_XINCREF(term.constraint);
        cluster->equals[at] = term;
        index->uses[term.attribute]++;
    }
    if (table->free_count > 0)
        cluster->id = table->free_ids[--table->free_count];
    else {
        if (table->cluster_count == table->cluster_room) {
            table->cluster_room = table->cluster_room ? table->cluster_room * 2 : 4;
            table->clusters = GROW(table->clusters, Cluster *, table->cluster_room);
        }
        cluster->id = table->cluster_count++;
    }
    table->clusters[cluster->id] = cluster;
    table->live++;
    hash_insert(&table->hash, code, cluster->id, cluster_code, table);
    return cluster;
}

static void cluster_free(Index *index, Cluster *cluster)
{
    Table *table = &index->tables[cluster->table];
    hash_remove(&table->hash, cluster->hash, cluster->id);
    table->clusters[cluster->id] = NULL;
    table->live--;
    if (table->free_count == table->free_room) {
        table->free_room = table->free_room ? table->free_room * 2 : 4;
        table->free_ids = GROW(table->free_ids, uint32_t, table->free_room);
    }
    table->free_ids[table->free_count++] = cluster->id;
    for (uint32_t at = 0; at < cluster->equal_count; at++) {
        drop_use(index, cluster->equals[at].attribute);
        Py_XDECREF(cluster->equals[at].constraint);
    }
    for (uint32_t at = 0; at < cluster->list_count; at++)
        list_free(cluster->lists[at]);
    free(cluster->lists);
    if (cluster->tree)
        tree_free(cluster->tree);
    free(cluster);
}

/* ---- records ---- */

static uint64_t text_hash(PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    uint64_t hash = 0xCBF29CE484222325ull;
    if (bytes == NULL)
        PyErr_Clear();
    for (Py_ssize_t at = 0; bytes && at < size; at++)
        hash = (hash ^ (unsigned char)bytes[at]) * 0x100000001B3ull;
    return hash;
}

/* A hash of what the record asks; the same in every process, because it decides where records lie. */
static uint32_t record_hash(const Record *record)
{
    uint64_t hash = record->term_count;
    for (unsigned at = 0; at < record->term_count; at++) {
        uint64_t bounds[2];
        memcpy(bounds, record_bounds(record) + 2 * at, sizeof bounds);
        hash = mix(mix(mix(hash ^ record_heads(record)[at]) ^ bounds[0]) ^ bounds[1]);
        PyObject *constraint = record->has_objects ? record_objects(record)[2 * at] : NULL;
        PyObject *literal = record->has_objects ? record_objects(record)[2 * at + 1] : NULL;
        if (literal != NULL)
            hash = mix(hash ^ text_hash(literal));
        else if (constraint != NULL) {
            PyObject *text = PyObject_Repr(constraint);
            hash = mix(hash ^ (text ? text_hash(text) : 0));
            if (text == NULL)
                PyErr_Clear();
            Py_XDECREF(text);
        }
    }
    return fold(mix(hash));
}

/* A record of the terms that the cluster's table does not hold. */
static Record *record_new(const Table *table, const Term *terms, int count)
{
    const Term *kept[TERMS_MAX];
    unsigned kept_count = 0;
    int has_objects = 0;
    for (int at = 0; at < count; at++) {
        int in_table = 0;
        for (uint32_t place = 0; place < table->attribute_count; place++)
            in_table |= table->attributes[place] == terms[at].attribute;
        if (in_table)
            continue;
        kept[kept_count++] = &terms[at];
        has_objects |= terms[at].constraint != NULL;
    }
    size_t size = sizeof(Record) + sizeof(uint32_t) * ((kept_count + 1) & ~1u) + sizeof(double) * 2 * kept_count +
                  (has_objects ? sizeof(PyObject *) * 2 * kept_count : 0);
    Record *record = must(calloc(1, size));
    record->term_count = (uint16_t)kept_count;
    record->has_objects = (unsigned)has_objects & 1;
    for (unsigned at = 0; at < kept_count; at++) {
        const Term *term = kept[at];
        record_heads(record)[at] =
            term->attribute | (uint32_t)term->kind << 20 | (uint32_t)term->flags << 22 | (uint32_t)term->text << 27;
        record_bounds(record)[2 * at] = term->lo;
        record_bounds(record)[2 * at + 1] = term->hi;
        if (has_objects) {
            record_objects(record)[2 * at] = Py_XNewRef(term->constraint);
            record_objects(record)[2 * at + 1] = term->literal;
        }
    }
    record->hash = record_hash(record);
    return record;
}

static void record_free(Record *record)
{
    if (record->has_objects)
        for (unsigned at = 0; at < record->term_count; at++)
            Py_XDECREF(record_objects(record)[2 * at]);
    free(record);
}

/* The list operator of a record with one one-sided number predicate, or -1. */
static int one_sided_op(const Record *record)
{
    if (record->term_count != 1)
        return -1;
    uint32_t head = record_heads(record)[0];
    const double *bounds = record_bounds(record);
    int open_below = isinf(bounds[0]) != 0, open_above = isinf(bounds[1]) != 0; /* the sign of isinf is not portable */
    if (head_kind(head) != NUM || head_flags(head) & VERIFY || open_below == open_above)
        return -1;
    if (open_above)
        return head_flags(head) & LO_OPEN ? OP_GT : OP_GE;
    return head_flags(head) & HI_OPEN ? OP_LT : OP_LE;
}

static double one_sided_key(const Record *record, uint32_t op)
{
    return list_key(op, record_bounds(record)[op >= OP_LT]);
}

static List *cluster_list(Cluster *cluster, uint32_t attribute, uint32_t op, int make)
{
    for (uint32_t at = 0; at < cluster->list_count; at++)
        if (cluster->lists[at]->attribute == attribute && cluster->lists[at]->op == op)
            return cluster->lists[at];
    if (!make)
        return NULL;
    cluster->lists = GROW(cluster->lists, List *, cluster->list_count + 1);
    List *list = NEW_ZEROED(List, 1);
    list->attribute = attribute;
    list->op = op;
    return cluster->lists[cluster->list_count++] = list;
}

/* Count what a record asks beyond its table's equalities. */
static void count_asked(Index *index, const Record *record, int by)
{
    Table *table = &index->tables[record->cluster->table];
    for (unsigned at = 0; at < record->term_count; at++) {
        uint32_t attribute = head_attribute(record_heads(record)[at]);
        if (attribute >= table->asked_room) {
            uint32_t room = index->attribute_room;
            table->asked = GROW(table->asked, uint32_t, room);
            memset(table->asked + table->asked_room, 0, sizeof(uint32_t) * (room - table->asked_room));
            table->asked_room = room;
        }
        table->asked[attribute] += (uint32_t)by;
    }
}

/* Whether some record of the table may be covered by the terms: each of their attributes is asked for somewhere in it. */
static int table_may_be_covered(const Table *table, const Term *terms, int count)
{
    for (int at = 0; at < count; at++) {
        uint32_t attribute = terms[at].attribute;
        int known = attribute < table->asked_room && table->asked[attribute] > 0;
        for (uint32_t place = 0; place < table->attribute_count && !known; place++)
            known = table->attributes[place] == attribute;
        if (!known)
            return 0;
    }
    return 1;
}

/* Put a record into its cluster; returns the one that asks for the same if it is there already, and frees the new one. */
static Record *place_record(Index *index, Cluster *cluster, Record *record)
{
    Record *same = NULL;
    int op = one_sided_op(record);
    if (record->term_count == 0) {
        same = cluster->always;
        if (same == NULL) {
            cluster->always = record;
            record->place = IN_CLUSTER;
        }
    }
    else if (op >= 0) {
        List *list = cluster_list(cluster, head_attribute(record_heads(record)[0]), (uint32_t)op, 1);
        double key = one_sided_key(record, (uint32_t)op);
        same = list_find(list, key);
        if (same == NULL) {
            list_insert(list, key, record);
            record->home = list;
            record->place = IN_LIST;
        }
    }
    else {
        if (cluster->tree == NULL)
            cluster->tree = tree_new();
        same = tree_find(cluster->tree, record);
        if (same == NULL)
            tree_insert(cluster->tree, record);
    }
    if (same != NULL) {
        record_free(record);
        return same;
    }
    record->cluster = cluster;
    cluster->record_count++;
    index->record_count++;
    count_asked(index, record, 1);
    for (unsigned at = 0; at < record->term_count; at++)
        index->uses[head_attribute(record_heads(record)[at])]++;
    return record;
}

static void remove_record(Index *index, Record *record)
{
    Cluster *cluster = record->cluster;
    if (record->place == IN_CLUSTER)
        cluster->always = NULL;
    else if (record->place == IN_LEAF)
        tree_remove(cluster->tree, record);
    else {
        List *list = record->home;
        list_remove(list, one_sided_key(record, list->op), record);
        if (list->chunk_count == 0) {
            uint32_t at = 0;
            while (cluster->lists[at] != list)
                at++;
            cluster->lists[at] = cluster->lists[--cluster->list_count];
            list_free(list);
        }
    }
    index->record_count--;
    count_asked(index, record, -1);
    for (unsigned at = 0; at < record->term_count; at++)
        drop_use(index, head_attribute(record_heads(record)[at]));
    record_free(record);
    if (--cluster->record_count == 0)
        cluster_free(index, cluster);
}

/* ---- keys ---- */

static uint32_t key_code(const void *context, uint32_t id) { return key_entry(context, id)->hash; }

typedef struct {
    PyObject *key;
    uint32_t hash;
} WantedKey;

static int key_same(const void *context, uint32_t id, const void *wanted)
{
    const KeyEntry *entry = key_entry(context, id);
    const WantedKey *key = wanted;
    if (entry->key == key->key)
        return 1;
    return entry->hash == key->hash ? PyObject_RichCompareBool(entry->key, key->key, Py_EQ) : 0;
}

/* 1 and the id, 0 if the key is unknown, -1 with an error set. */
static int find_key(const Index *index, PyObject *key, uint32_t *code, uint32_t *id)
{
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1)
        return -1;
    *code = fold(mix((uint64_t)hash));
    WantedKey wanted = {key, *code};
    return hash_find(&index->keys, *code, key_same, index, &wanted, id);
}

#define NO_KEY UINT32_MAX

static uint32_t new_key(Index *index)
{
    if (index->free_key == NO_KEY) {
        if (index->key_slab_count == index->key_slab_room) {
            index->key_slab_room = index->key_slab_room ? index->key_slab_room * 2 : 1;
            index->key_slabs = GROW(index->key_slabs, KeyEntry *, index->key_slab_room);
        }
        uint32_t first = index->key_slab_count * KEY_SLAB;
        index->key_slabs[index->key_slab_count++] = NEW_ZEROED(KeyEntry, KEY_SLAB);
        for (uint32_t at = KEY_SLAB; at-- > 0;) {
            key_entry(index, first + at)->next = index->free_key;
            index->free_key = first + at;
        }
    }
    uint32_t id = index->free_key;
    index->free_key = key_entry(index, id)->next;
    return id;
}

/* The id of a group, which is made if it is new; NO_GROUP with an error set if that fails. */
static uint32_t group_for(Index *index, PyObject *group)
{
    PyObject *known = PyDict_GetItemWithError(index->group_ids, group);
    if (known != NULL)
        return (uint32_t)PyLong_AsUnsignedLong(known);
    if (PyErr_Occurred())
        return NO_GROUP;
    uint32_t id = 0;
    if (index->group_live == index->group_count) {
        if (index->group_count == index->group_room) {
            index->group_room = index->group_room ? index->group_room * 2 : 16;
            index->groups = GROW(index->groups, Group, index->group_room);
        }
        id = index->group_count++;
    }
    else
        while (index->groups[id].object != NULL)
            id++;
    index->groups[id] = (Group){0};
    PyObject *number = PyLong_FromUnsignedLong(id);
    if (number == NULL || PyDict_SetItem(index->group_ids, group, number) < 0) {
        Py_XDECREF(number);
        return NO_GROUP;
    }
    Py_DECREF(number);
    index->groups[id].object = Py_NewRef(group);
    index->group_live++;
    return id;
}

static void leave_group(Index *index, uint32_t id)
{
    if (id == NO_GROUP || --index->groups[id].key_count > 0)
        return;
    PyObject *object = index->groups[id].object;
    if (PyDict_DelItem(index->group_ids, object) < 0)
        PyErr_Clear();
    index->groups[id].object = NULL;
    index->group_live--;
    Py_DECREF(object);
}

static void attach_key(Index *index, Record *record, PyObject *key, uint32_t code, uint32_t group)
{
    uint32_t id = new_key(index);
    KeyEntry *entry = key_entry(index, id);
    *entry = (KeyEntry){Py_NewRef(key), record, id, id, code, group};
    if (group != NO_GROUP)
        index->groups[group].key_count++;
    if (record->key_count++ == 0)
        record->first_key = id;
    else {
        KeyEntry *first = key_entry(index, record->first_key);
        entry->next = record->first_key;
        entry->previous = first->previous;
        key_entry(index, first->previous)->next = id;
        first->previous = id;
    }
    hash_insert(&index->keys, code, id, key_code, index);
    index->key_count++;
}

static void detach_key(Index *index, uint32_t id)
{
    KeyEntry *entry = key_entry(index, id);
    Record *record = entry->record;
    PyObject *key = entry->key;
    uint32_t group = entry->group;
    hash_remove(&index->keys, entry->hash, id);
    index->key_count--;
    key_entry(index, entry->previous)->next = entry->next;
    key_entry(index, entry->next)->previous = entry->previous;
    if (record->first_key == id)
        record->first_key = entry->next;
    entry->key = NULL;
    entry->next = index->free_key;
    index->free_key = id;
    if (--record->key_count == 0)
        remove_record(index, record);
    leave_group(index, group);
    Py_DECREF(key);
}

/* ---- adding and removing ---- */

static PyObject *index_add(Index *index, PyObject *const *arguments, Py_ssize_t argument_count)
{
    if (argument_count != 2 && argument_count != 3) {
        PyErr_SetString(PyExc_TypeError, "add takes a key, a filter and, optionally, a group");
        return NULL;
    }
    PyObject *key = arguments[0];
    uint32_t code, id;
    int known = find_key(index, key, &code, &id);
    if (known < 0)
        return NULL;
    if (known) {
        PyObject *message = PyUnicode_FromFormat("the key %R is already in use", key);
        if (message != NULL)
            PyErr_SetObject(PyExc_KeyError, message);
        Py_XDECREF(message);
        return NULL;
    }
    Term terms[TERMS_MAX];
    int count = read_filter(index, arguments[1], terms, 1);
    if (count < 0) {
        for (uint32_t at = 0; at < index->attribute_count; at++)
            release_attribute(index, at);
        return NULL;
    }
    uint32_t group = NO_GROUP;
    if (argument_count == 3 && arguments[2] != Py_None && (group = group_for(index, arguments[2])) == NO_GROUP) {
        for (uint32_t at = 0; at < index->attribute_count; at++)
            release_attribute(index, at);
        return NULL;
    }
    index->version++;
    uint32_t table = table_for(index, terms, count), cluster_hash;
    Cluster *cluster = cluster_for_terms(&index->tables[table], terms, count, &cluster_hash);
    if (cluster == NULL)
        cluster = cluster_new(index, table, terms, count, cluster_hash);
    Record *record = place_record(index, cluster, record_new(&index->tables[table], terms, count));
    attach_key(index, record, key, code, group);
    Py_RETURN_NONE;
}

static PyObject *index_remove(Index *index, PyObject *key)
{
    uint32_t code, id;
    int known = find_key(index, key, &code, &id);
    if (known < 0)
        return NULL;
    if (!known) {
        PyObject *message = PyUnicode_FromFormat("unknown key %R", key);
        if (message != NULL)
            PyErr_SetObject(PyExc_KeyError, message);
        Py_XDECREF(message);
        return NULL;
    }
    index->version++;
    detach_key(index, id);
    Py_RETURN_NONE;
}

/* ---- matching ---- */

/* The attribute of a publication's name, -1 if looking it up failed. Publications of one kind have their names in one order,
 * so the answer for a place is mostly the same as last time. */
enum { UNKNOWN_ATTRIBUTE = -2 };
static int64_t attribute_at(Index *index, uint32_t number, PyObject *name)
{
    NamePlace *last = &index->last_names[number % LAST_NAMES];
    if (last->name == name && last->names_version == index->names_version)
        return last->attribute;
    PyObject *id = PyDict_GetItemWithError(index->attribute_ids, name);
    if (id == NULL && PyErr_Occurred())
        return -1;
    int64_t attribute = id ? (int64_t)PyLong_AsUnsignedLong(id) : UNKNOWN_ATTRIBUTE;
    Py_XSETREF(last->name, Py_NewRef(name)); /* kept, so that no other name can come to lie at its address */
    last->names_version = index->names_version;
    last->attribute = attribute;
    return attribute;
}

static int read_publication(Index *index, PyObject *values)
{
    if (++index->stamp == 0) {
        for (uint32_t at = 0; at < index->attribute_count; at++)
            index->values[at].stamp = 0;
        for (uint32_t id = 0; id < index->group_count; id++)
            index->groups[id].stamp = 0;
        index->stamp = 1;
    }
    PyObject *name, *object;
    Py_ssize_t place = 0;
    for (uint32_t number = 0; PyDict_Next(values, &place, &name, &object); number++) {
        int64_t attribute = attribute_at(index, number, name);
        if (attribute == UNKNOWN_ATTRIBUTE)
            continue;
        if (attribute < 0)
            return -1;
        Value *value = &index->values[attribute];
        if (read_value(value, name, object) < 0)
            return -1;
        value->stamp = index->stamp;
    }
    return 0;
}

static void push_prefix(Index *index, Prefix prefix)
{
    if (prefix.chunk == 0 && prefix.offset == 0)
        return;
    if (index->prefix_count == index->prefix_room) {
        index->prefix_room = index->prefix_room ? index->prefix_room * 2 : 64;
        index->prefixes = GROW(index->prefixes, Prefix, index->prefix_room);
    }
    index->prefixes[index->prefix_count++] = prefix;
}

static void match_cluster(Index *index, Cluster *cluster)
{
    if (cluster->always != NULL)
        push_found(index, cluster->always);
    for (uint32_t at = 0; at < cluster->list_count; at++) {
        List *list = cluster->lists[at];
        const Value *value = &index->values[list->attribute];
        if (value->stamp == index->stamp && value->kind == NUM)
            push_prefix(index, list_prefix(list, value->x, value->side));
    }
    if (cluster->tree != NULL)
        tree_match(index, cluster->tree);
}

static void begin_query(Index *index)
{
    index->candidate_count = index->unsure_count = index->found_count = index->prefix_count = 0;
}

/* Fill in what matches a dictionary of values. */
static int match_values(Index *index, PyObject *values)
{
    begin_query(index);
    if (read_publication(index, values) < 0)
        return -1;
    for (uint32_t at = 0; at < index->table_count; at++) {
        const Table *table = &index->tables[index->table_order[at]];
        uint64_t hash = 0;
        uint32_t present = 0;
        for (; present < table->attribute_count; present++) {
            const Value *value = &index->values[table->attributes[present]];
            if (value->stamp != index->stamp || value->side != 0)
                break;
            hash = mix(hash ^ value->hash);
        }
        uint32_t id;
        if (present == table->attribute_count && table->live > 0 &&
            hash_find(&table->hash, fold(hash), cluster_has_values, table, index->values, &id) == 1)
            match_cluster(index, table->clusters[id]);
    }
    for (size_t at = 0; at < index->unsure_count; at++) {
        int admits = record_admits(index, index->unsure[at]);
        if (admits < 0)
            return -1;
        if (admits)
            push_found(index, index->unsure[at]);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* The dictionary of values of a publication, as a new reference. */
static PyObject *values_of(PyObject *publication)
{
    if (PyDict_Check(publication))
        return Py_NewRef(publication);
    PyObject *values = PyObject_GetAttr(publication, str_values_by_name);
    if (values != NULL && PyDict_Check(values))
        return values;
    Py_XDECREF(values);
    PyErr_Clear();
    if (PyMapping_Check(publication) && !PyUnicode_Check(publication) && !PyBytes_Check(publication) &&
        !PyList_Check(publication) && !PyTuple_Check(publication)) {
        PyObject *copy = PyDict_New();
        if (copy != NULL && PyDict_Update(copy, publication) == 0)
            return copy;
        Py_XDECREF(copy);
        PyErr_Clear();
    }
    PyErr_Format(PyExc_TypeError, "expected a Publication or a mapping of values, not %s", Py_TYPE(publication)->tp_name);
    return NULL;
}

static PyObject *index_match(Index *index, PyObject *publication)
{
    PyObject *values = values_of(publication);
    if (values == NULL)
        return NULL;
    int failed = match_values(index, values);
    Py_DECREF(values);
    return failed ? NULL : matches_new(index);
}

/* Note the groups of a record's keys; whether all groups have been found. */
static int note_groups(Index *index, const Record *record, uint32_t *left)
{
    uint32_t id = record->first_key;
    for (uint32_t keys = record->key_count; keys > 0 && *left > 0; keys--) {
        const KeyEntry *entry = key_entry(index, id);
        Group *group = entry->group == NO_GROUP ? NULL : &index->groups[entry->group];
        if (group != NULL && group->stamp != index->stamp) {
            group->stamp = index->stamp;
            --*left;
        }
        id = entry->next;
    }
    return *left == 0;
}

static void note_all_groups(Index *index)
{
    uint32_t left = index->group_live;
    for (size_t at = 0; at < index->found_count; at++)
        if (note_groups(index, index->found[at], &left))
            return;
    for (size_t at = 0; at < index->prefix_count; at++) {
        const Prefix *prefix = &index->prefixes[at];
        for (uint32_t chunk = 0; chunk <= prefix->chunk; chunk++) {
            const Chunk *records = prefix->list->chunks[chunk].chunk;
            uint32_t count = chunk < prefix->chunk ? records->count : prefix->offset;
            for (uint32_t place = 0; place < count; place++)
                if (note_groups(index, records->records[place], &left))
                    return;
        }
    }
}

static PyObject *index_match_groups(Index *index, PyObject *publication)
{
    PyObject *values = values_of(publication);
    if (values == NULL)
        return NULL;
    int failed = match_values(index, values);
    Py_DECREF(values);
    if (failed)
        return NULL;
    note_all_groups(index);
    PyObject *found = PyList_New(0);
    for (uint32_t id = 0; found != NULL && id < index->group_count; id++) {
        const Group *group = &index->groups[id];
        if (group->object != NULL && group->stamp == index->stamp && PyList_Append(found, group->object) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *index_match_many(Index *index, PyObject *publications)
{
    PyObject *items = PySequence_Fast(publications, "match_many takes a sequence of publications");
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    PyObject *results = PyList_New(count);
    for (Py_ssize_t at = 0; results != NULL && at < count; at++) {
        PyObject *matches = index_match(index, PySequence_Fast_GET_ITEM(items, at));
        if (matches == NULL)
            Py_CLEAR(results);
        else
            PyList_SET_ITEM(results, at, matches);
    }
    Py_DECREF(items);
    return results;
}

/* ---- covering ---- */

static Record *record_of_key(Index *index, PyObject *key, int *failed)
{
    uint32_t code, id;
    *failed = 0;
    if (key == NULL || key == Py_None)
        return NULL;
    int known = find_key(index, key, &code, &id);
    *failed = known < 0;
    return known == 1 ? key_entry(index, id)->record : NULL;
}

/* The record of a list that covers the term most closely; NULL if none does. */
static Record *closest_in_list(List *list, const Term *term, const Record *exclude)
{
    int upper = list->op >= OP_LT;
    double bound = upper ? term->hi : term->lo;
    if (term->kind != NUM || isinf(bound))
        return NULL;
    int side = upper ? -term->hi_side : term->lo_side;
    int open = (term->flags & (upper ? HI_OPEN : LO_OPEN)) != 0;
    int strict = list->op == OP_GT || list->op == OP_LT;
    int equal_covers = side > 0 || (side == 0 && (open || !strict));
    Prefix prefix = list_not_above(list, list_key(list->op, bound), !equal_covers);
    for (uint32_t chunk = prefix.chunk + 1, offset = prefix.offset; chunk-- > 0;) {
        while (offset-- > 0)
            if (list->chunks[chunk].chunk->records[offset] != exclude)
                return list->chunks[chunk].chunk->records[offset];
        if (chunk > 0)
            offset = list->chunks[chunk - 1].chunk->count;
    }
    return NULL;
}

/* Some record of the cluster that covers the terms, the closest first; NULL if none does or an error is set. */
static Record *covering_in_cluster(Index *index, Cluster *cluster, const Term *terms, int count, const Record *exclude)
{
    index->candidate_count = 0;
    if (cluster->tree != NULL)
        tree_covering(index, cluster->tree, terms, count);
    for (size_t at = 0; at < index->candidate_count; at++) {
        Record *record = candidate(index, at);
        int covers = record == exclude ? 0 : record_covers_terms(record, terms, count);
        if (covers != 0)
            return covers > 0 ? record : NULL;
    }
    for (uint32_t at = 0; at < cluster->list_count; at++) {
        const Term *term = term_on(terms, count, cluster->lists[at]->attribute);
        Record *closest = term ? closest_in_list(cluster->lists[at], term, exclude) : NULL;
        if (closest != NULL)
            return closest;
    }
    return cluster->always != exclude ? cluster->always : NULL;
}

static int read_question(Index *index, PyObject *const *arguments, Py_ssize_t argument_count, PyObject *names, Term *terms,
                         Record **exclude)
{
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    if (argument_count < 1 || argument_count + named > 2 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "exclude") != 0)) {
        PyErr_SetString(PyExc_TypeError, "expected a filter and, optionally, exclude=key");
        return -1;
    }
    int failed;
    *exclude = record_of_key(index, argument_count + named == 2 ? arguments[1] : NULL, &failed);
    return failed ? -1 : read_filter(index, arguments[0], terms, 0);
}

static PyObject *index_find_covering(Index *index, PyObject *const *arguments, Py_ssize_t argument_count, PyObject *names)
{
    Term terms[TERMS_MAX];
    Record *exclude;
    int count = read_question(index, arguments, argument_count, names, terms, &exclude);
    if (count < 0)
        return NULL;
    begin_query(index);
    for (uint32_t at = 0; at < index->table_count; at++) {
        const Table *table = &index->tables[index->table_order[at]];
        uint32_t code;
        if (table->live == 0 || !table_fits(table, terms, count))
            continue;
        Cluster *cluster = cluster_for_terms(table, terms, count, &code);
        Record *record = cluster ? covering_in_cluster(index, cluster, terms, count, exclude) : NULL;
        if (PyErr_Occurred())
            return NULL;
        if (record != NULL)
            return Py_NewRef(key_entry(index, record->first_key)->key);
    }
    Py_RETURN_NONE;
}

/* Whether the terms admit the cluster's equal values; `rest` gets the terms on other attributes. */
static int terms_admit_cluster(const Cluster *cluster, const Term *terms, int count, Term *rest, int *rest_count)
{
    *rest_count = 0;
    for (int at = 0; at < count; at++) {
        const Term *equal = term_on(cluster->equals, (int)cluster->equal_count, terms[at].attribute);
        if (equal == NULL)
            rest[(*rest_count)++] = terms[at];
        else {
            int covers = term_covers(&terms[at], equal);
            if (covers <= 0)
                return covers;
        }
    }
    return 1;
}

static void push_list(Index *index, const List *list)
{
    for (uint32_t chunk = 0; chunk < list->chunk_count; chunk++)
        for (uint32_t at = 0; at < list->chunks[chunk].chunk->count; at++)
            push_candidate(index, &list->chunks[chunk].chunk->records[at]);
}

static int covered_in_cluster(Index *index, Cluster *cluster, const Term *terms, int count)
{
    Term rest[TERMS_MAX];
    int rest_count;
    int admits = terms_admit_cluster(cluster, terms, count, rest, &rest_count);
    if (admits <= 0)
        return admits;
    index->candidate_count = 0;
    if (cluster->tree != NULL) {
        if (rest_count == 0)
            tree_all(index, cluster->tree);
        else
            tree_covered(index, cluster->tree, rest, rest_count);
    }
    if (rest_count == 0 && cluster->always != NULL)
        push_candidate(index, &cluster->always);
    for (uint32_t at = 0; at < cluster->list_count; at++)
        if (rest_count == 0 || (rest_count == 1 && rest[0].attribute == cluster->lists[at]->attribute))
            push_list(index, cluster->lists[at]);
    for (size_t at = 0; at < index->candidate_count; at++) {
        Record *record = candidate(index, at);
        int covers = rest_count == 0 ? 1 : terms_cover_record(rest, rest_count, record);
        if (covers < 0)
            return -1;
        if (covers)
            push_found(index, record);
    }
    return 0;
}

static PyObject *index_find_covered(Index *index, PyObject *const *arguments, Py_ssize_t argument_count, PyObject *names)
{
    Term terms[TERMS_MAX];
    Record *exclude;
    int count = read_question(index, arguments, argument_count, names, terms, &exclude);
    if (count < 0)
        return NULL;
    begin_query(index);
    int unknown = count > 0 && terms[count - 1].attribute == ATTRIBUTES_MAX;
    for (uint32_t at = 0; at < index->table_count && !unknown; at++) {
        const Table *table = &index->tables[index->table_order[at]];
        uint32_t code;
        if (table->live == 0 || !table_may_be_covered(table, terms, count))
            continue;
        if (table->attribute_count > 0 && table_fits(table, terms, count)) {
            Cluster *cluster = cluster_for_terms(table, terms, count, &code);
            if (cluster != NULL && covered_in_cluster(index, cluster, terms, count) < 0)
                return NULL;
            continue;
        }
        for (uint32_t id = 0; id < table->cluster_count; id++)
            if (table->clusters[id] != NULL && covered_in_cluster(index, table->clusters[id], terms, count) < 0)
                return NULL;
    }
    PyObject *keys = PyList_New(0);
    for (size_t at = 0; keys != NULL && at < index->found_count; at++)
        if (index->found[at] != exclude)
            keys = append_keys(index, keys, index->found[at]);
    return keys;
}

/* ---- the Python type ---- */

static PyObject *index_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    if (PyTuple_GET_SIZE(arguments) > 0 || (names && PyDict_GET_SIZE(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "Index takes no arguments");
        return NULL;
    }
    Index *index = (Index *)type->tp_alloc(type, 0);
    if (index == NULL)
        return NULL;
    index->free_key = NO_KEY;
    index->table_count = 1;
    index->attribute_ids = PyDict_New();
    index->group_ids = PyDict_New();
    if (index->attribute_ids == NULL || index->group_ids == NULL)
        Py_CLEAR(index);
    return (PyObject *)index;
}

static int index_traverse(Index *index, visitproc visit, void *arg)
{
    Py_VISIT(index->attribute_ids);
    Py_VISIT(index->group_ids);
    for (uint32_t id = 0; id < index->group_count; id++)
        Py_VISIT(index->groups[id].object);
    for (uint32_t id = 0; id < index->key_slab_count * KEY_SLAB; id++)
        Py_VISIT(key_entry(index, id)->key);
    return 0;
}

static int index_clear(Index *index)
{
    index->version++;
    for (uint32_t id = 0; id < index->key_slab_count * KEY_SLAB; id++)
        if (key_entry(index, id)->key != NULL)
            detach_key(index, id);
    return 0;
}

static void index_dealloc(Index *index)
{
    PyObject_GC_UnTrack(index);
    index_clear(index);
    for (uint32_t at = 0; at < index->table_count; at++) {
        hash_free(&index->tables[at].hash);
        free(index->tables[at].clusters);
        free(index->tables[at].free_ids);
        free(index->tables[at].asked);
    }
    hash_free(&index->keys);
    for (uint32_t at = 0; at < index->key_slab_count; at++)
        free(index->key_slabs[at]);
    for (uint32_t at = 0; at < index->attribute_count; at++)
        Py_XDECREF(index->names[at]);
    free(index->key_slabs);
    free(index->groups);
    free(index->names);
    free(index->uses);
    free(index->free_attributes);
    free(index->values);
    free(index->candidates);
    free(index->unsure);
    free(index->found);
    free(index->prefixes);
    for (uint32_t at = 0; at < LAST_NAMES; at++)
        Py_XDECREF(index->last_names[at].name);
    Py_XDECREF(index->attribute_ids);
    Py_XDECREF(index->group_ids);
    Py_TYPE(index)->tp_free((PyObject *)index);
}

static Py_ssize_t index_length(Index *index) { return index->key_count; }

static int index_contains(Index *index, PyObject *key)
{
    uint32_t code, id;
    return find_key(index, key, &code, &id);
}

static PyObject *index_statistics(Index *index, PyObject *unused)
{
    (void)unused;
    Py_ssize_t clusters = 0, tables = 0, leaves = 0, bytes = 0;
    for (uint32_t at = 0; at < index->table_count; at++) {
        const Table *table = &index->tables[at];
        tables += table->live > 0;
        clusters += table->live;
        for (uint32_t id = 0; id < table->cluster_count; id++)
            if (table->clusters[id] && table->clusters[id]->tree) {
                leaves += table->clusters[id]->tree->leaf_count;
                bytes += (Py_ssize_t)tree_bytes(table->clusters[id]->tree);
            }
    }
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:n}", "keys", index->key_count, "filters", index->record_count, "tables",
                         tables, "clusters", clusters, "blocks", leaves, "block_bytes", bytes);
}

static PyMethodDef index_methods[] = {
    {"add", (PyCFunction)(void (*)(void))index_add, METH_FASTCALL,
     "add(key, filter, group=None): store a filter under a new key, in a group of keys."},
    {"remove", (PyCFunction)index_remove, METH_O, "remove(key): forget a key and, with its last key, the filter."},
    {"match", (PyCFunction)index_match, METH_O, "match(publication): the keys of all filters that match, lazily."},
    {"match_groups", (PyCFunction)index_match_groups, METH_O,
     "match_groups(publication): the groups in which any filter matches, in the order of their first keys."},
    {"match_many", (PyCFunction)index_match_many, METH_O, "match_many(publications): one result per publication."},
    {"find_covering", (PyCFunction)(void (*)(void))index_find_covering, METH_FASTCALL | METH_KEYWORDS,
     "find_covering(filter, exclude=None): a key whose filter covers the given one, or None."},
    {"find_covered", (PyCFunction)(void (*)(void))index_find_covered, METH_FASTCALL | METH_KEYWORDS,
     "find_covered(filter, exclude=None): the keys of all filters that the given one covers."},
    {"statistics", (PyCFunction)index_statistics, METH_NOARGS, "statistics(): counts and sizes, for people who look inside."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods index_as_sequence = {
    .sq_length = (lenfunc)index_length,
    .sq_contains = (objobjproc)index_contains,
};

PyTypeObject IndexType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "trimtab.matching._kernel.Index",
    .tp_basicsize = sizeof(Index),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Filters by key, and which of them a publication satisfies.",
    .tp_new = index_new,
    .tp_dealloc = (destructor)index_dealloc,
    .tp_traverse = (traverseproc)index_traverse,
    .tp_clear = (inquiry)index_clear,
    .tp_methods = index_methods,
    .tp_as_sequence = &index_as_sequence,
};

static struct PyModuleDef kernel_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "trimtab.matching._kernel",
    .m_doc = "The compiled matching kernel.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    if (terms_module_init() < 0 || PyType_Ready(&IndexType) < 0 || PyType_Ready(&MatchesType) < 0)
        return NULL;
    str_values_by_name = PyUnicode_InternFromString("values_by_name");
    PyObject *module = PyModule_Create(&kernel_module);
    if (module == NULL || str_values_by_name == NULL || PyModule_AddObjectRef(module, "Index", (PyObject *)&IndexType) < 0 ||
        PyModule_AddObjectRef(module, "Matches", (PyObject *)&MatchesType) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
