/* The result of a match: prefixes of lists and records. Keys become Python objects only when somebody iterates. */
#include "kernel.h"

typedef struct {
    PyObject_HEAD
    Index *index;
    uint64_t version;
    Py_ssize_t length; /* -1 until somebody asks */
    uint32_t prefix_count, record_count;
    Prefix *prefixes; /* followed by the records, in one allocation */
    Record **records;
} Matches;

PyObject *matches_new(Index *index)
{
    Matches *matches = PyObject_New(Matches, &MatchesType);
    if (matches == NULL)
        return NULL;
    size_t prefix_size = sizeof(Prefix) * index->prefix_count, record_size = sizeof(Record *) * index->found_count;
    matches->index = (Index *)Py_NewRef(index);
    matches->version = index->version;
    matches->length = -1;
    matches->prefix_count = (uint32_t)index->prefix_count;
    matches->record_count = (uint32_t)index->found_count;
    matches->prefixes = must(malloc(prefix_size + record_size + 1));
    matches->records = (Record **)((char *)matches->prefixes + prefix_size);
    if (prefix_size)
        memcpy(matches->prefixes, index->prefixes, prefix_size);
    if (record_size)
        memcpy(matches->records, index->found, record_size);
    return (PyObject *)matches;
}

static void matches_dealloc(Matches *matches)
{
    free(matches->prefixes);
    Py_DECREF(matches->index);
    PyObject_Free(matches);
}

static int still_valid(const Matches *matches)
{
    if (matches->version == matches->index->version)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "the matcher changed after this match; take list(matches) before changing it");
    return 0;
}

/* Append all keys of a record; on failure the list is released and NULL returned. */
PyObject *append_keys(Index *index, PyObject *list, const Record *record)
{
    uint32_t id = record->first_key;
    for (uint32_t left = record->key_count; left > 0; left--) {
        const KeyEntry *entry = key_entry(index, id);
        if (PyList_Append(list, entry->key) < 0) {
            Py_DECREF(list);
            return NULL;
        }
        id = entry->next;
    }
    return list;
}

static Py_ssize_t matches_length(Matches *matches)
{
    if (!still_valid(matches))
        return -1;
    if (matches->length >= 0)
        return matches->length;
    Py_ssize_t length = 0;
    for (uint32_t at = 0; at < matches->record_count; at++)
        length += matches->records[at]->key_count;
    for (uint32_t at = 0; at < matches->prefix_count; at++) {
        const Prefix *prefix = &matches->prefixes[at];
        for (uint32_t chunk = 0; chunk <= prefix->chunk; chunk++) {
            const Chunk *records = prefix->list->chunks[chunk].chunk;
            uint32_t count = chunk < prefix->chunk ? records->count : prefix->offset;
            for (uint32_t place = 0; place < count; place++)
                length += records->records[place]->key_count;
        }
    }
    return matches->length = length;
}

static PyObject *matches_keys(Matches *matches)
{
    if (!still_valid(matches))
        return NULL;
    PyObject *keys = PyList_New(0);
    for (uint32_t at = 0; keys && at < matches->record_count; at++)
        keys = append_keys(matches->index, keys, matches->records[at]);
    for (uint32_t at = 0; keys && at < matches->prefix_count; at++) {
        const Prefix *prefix = &matches->prefixes[at];
        for (uint32_t chunk = 0; keys && chunk <= prefix->chunk; chunk++) {
            const Chunk *records = prefix->list->chunks[chunk].chunk;
            uint32_t count = chunk < prefix->chunk ? records->count : prefix->offset;
            for (uint32_t place = 0; keys && place < count; place++)
                keys = append_keys(matches->index, keys, records->records[place]);
        }
    }
    return keys;
}

static PyObject *matches_iter(Matches *matches)
{
    PyObject *keys = matches_keys(matches);
    PyObject *iterator = keys ? PyObject_GetIter(keys) : NULL;
    Py_XDECREF(keys);
    return iterator;
}

static int matches_bool(Matches *matches)
{
    return still_valid(matches) ? matches->prefix_count + matches->record_count > 0 : -1;
}

static PyObject *matches_repr(Matches *matches)
{
    if (matches->version != matches->index->version)
        return PyUnicode_FromString("<Matches of a matcher that has changed>");
    return PyUnicode_FromFormat("<Matches: %zd>", matches_length(matches));
}

static PySequenceMethods matches_as_sequence = {.sq_length = (lenfunc)matches_length};
static PyNumberMethods matches_as_number = {.nb_bool = (inquiry)matches_bool};

PyTypeObject MatchesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "trimtab.matching._kernel.Matches",
    .tp_basicsize = sizeof(Matches),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The keys of all filters that a publication satisfies; valid until the matcher changes.",
    .tp_dealloc = (destructor)matches_dealloc,
    .tp_iter = (getiterfunc)matches_iter,
    .tp_repr = (reprfunc)matches_repr,
    .tp_as_sequence = &matches_as_sequence,
    .tp_as_number = &matches_as_number,
};
