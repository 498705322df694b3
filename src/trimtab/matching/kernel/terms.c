/* Reading filters and values from Python, and the two questions about terms: does it admit a value, does it cover a term.
 *
 * What the kernel cannot decide by itself (texts with several conditions, excluded points, integers that no double holds) it
 * asks of the constraint object of trimtab.language, which is the definition. */
#include "kernel.h"

static PyObject *numbers_type, *strings_type, *booleans_type, *any_type, *like_type, *bound_type;
static PyObject *shape_prefix, *shape_suffix, *shape_contains;
static PyObject *str_low, *str_low_open, *str_high, *str_high_open, *str_excluded, *str_equal, *str_conditions, *str_true,
    *str_false, *str_pattern, *str_wanted, *str_shape, *str_literal, *str_limit, *str_below, *str_constraints, *str_admits,
    *str_covers;

static int fetch(PyObject *module, const char *name, PyObject **into)
{
    *into = PyObject_GetAttrString(module, name);
    return *into == NULL ? -1 : 0;
}

int terms_module_init(void)
{
    static const struct {
        PyObject **into;
        const char *text;
    } names[] = {
        {&str_low, "low"}, {&str_low_open, "low_open"}, {&str_high, "high"}, {&str_high_open, "high_open"},
        {&str_excluded, "excluded"}, {&str_equal, "equal"}, {&str_conditions, "conditions"}, {&str_true, "true"},
        {&str_false, "false"}, {&str_pattern, "pattern"}, {&str_wanted, "wanted"}, {&str_shape, "shape"},
        {&str_literal, "literal"}, {&str_limit, "limit"}, {&str_below, "below"}, {&str_constraints, "constraints"},
        {&str_admits, "admits"}, {&str_covers, "covers"},
    };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        if ((*names[at].into = PyUnicode_InternFromString(names[at].text)) == NULL)
            return -1;
    PyObject *constraints = PyImport_ImportModule("trimtab.language.constraints");
    PyObject *sets = PyImport_ImportModule("trimtab.language.string_sets");
    PyObject *patterns = PyImport_ImportModule("trimtab.language.patterns");
    PyObject *shape = patterns ? PyObject_GetAttrString(patterns, "Shape") : NULL;
    int failed = !constraints || !sets || !shape || fetch(constraints, "Numbers", &numbers_type) ||
                 fetch(constraints, "Strings", &strings_type) || fetch(constraints, "Booleans", &booleans_type) ||
                 fetch(constraints, "AnyValue", &any_type) || fetch(sets, "Like", &like_type) ||
                 fetch(sets, "Bound", &bound_type) || fetch(shape, "PREFIX", &shape_prefix) ||
                 fetch(shape, "SUFFIX", &shape_suffix) || fetch(shape, "CONTAINS", &shape_contains);
    Py_XDECREF(constraints);
    Py_XDECREF(sets);
    Py_XDECREF(patterns);
    Py_XDECREF(shape);
    return failed ? -1 : 0;
}

/* ---- values ---- */

/* A number as the nearest double, and the side of it on which the number lies. */
static int read_number(PyObject *object, double *x, int8_t *side)
{
    *side = 0;
    if (PyFloat_Check(object)) {
        *x = PyFloat_AS_DOUBLE(object) + 0.0; /* no negative zero */
        if (!isfinite(*x)) {
            PyErr_SetString(PyExc_ValueError, "numbers must be finite");
            return -1;
        }
        return 0;
    }
    int overflow;
    long long integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) {
        PyErr_SetString(PyExc_ValueError, "an integer beyond 64 bits");
        return -1;
    }
    if (integer == -1 && PyErr_Occurred())
        return -1;
    *x = (double)integer;
    if (integer > 1ll << 53 || integer < -(1ll << 53)) {
        if (*x >= 9223372036854775808.0)
            *side = -1;
        else
            *side = (int8_t)((integer > (long long)*x) - (integer < (long long)*x));
    }
    return 0;
}

static uint64_t number_hash(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix(bits ^ 0x51ED270B7F4A7C15ull);
}

int read_value(Value *value, PyObject *name, PyObject *object)
{
    value->object = object;
    value->side = 0;
    value->placed = 1;
    if (PyUnicode_Check(object)) {
        Py_hash_t hash = PyObject_Hash(object);
        if (hash == -1)
            return -1;
        value->kind = STR;
        value->placed = 0;
        value->hash = mix((uint64_t)hash);
        return 0;
    }
    if (PyBool_Check(object)) {
        value->kind = BOOL;
        value->x = object == Py_True;
        value->hash = mix(object == Py_True ? 3 : 5);
        return 0;
    }
    if (PyLong_Check(object) || PyFloat_Check(object)) {
        value->kind = NUM;
        if (read_number(object, &value->x, &value->side) == 0) {
            value->hash = number_hash(value->x);
            return 0;
        }
        PyObject *type, *reason, *trace;
        PyErr_Fetch(&type, &reason, &trace);
        PyErr_Format(PyExc_ValueError, "attribute %S: %S", name, reason ? reason : Py_None);
        Py_XDECREF(type);
        Py_XDECREF(reason);
        Py_XDECREF(trace);
        return -1;
    }
    PyErr_Format(PyExc_TypeError, "attribute %S: %s is not a kind of value; use a string, a number or a boolean", name,
                 Py_TYPE(object)->tp_name);
    return -1;
}

/* The first six bytes of a text's UTF-8 as a number, missing ones replaced by `fill`: in the same order as the texts. */
double text_position(PyObject *text, int fill)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL)
        return -1;
    uint64_t position = 0;
    for (Py_ssize_t at = 0; at < 6; at++)
        position = position << 8 | (at < size ? (unsigned char)bytes[at] : (unsigned)fill);
    return (double)position;
}

static const double TEXT_END = 281474976710655.0; /* six bytes of 255 */

/* ---- reading filters ---- */

static int read_flag(PyObject *object, PyObject *name)
{
    PyObject *flag = PyObject_GetAttr(object, name);
    if (flag == NULL)
        return -1;
    int answer = PyObject_IsTrue(flag);
    Py_DECREF(flag);
    return answer;
}

static int read_bound(PyObject *constraint, PyObject *name, PyObject *open_name, uint8_t open_flag, Term *term, double *bound,
                      int8_t *side)
{
    PyObject *object = PyObject_GetAttr(constraint, name);
    if (object == NULL)
        return -1;
    int failed = 0;
    if (object != Py_None) {
        failed = read_number(object, bound, side);
        int open = failed ? -1 : read_flag(constraint, open_name);
        if (open < 0)
            failed = -1;
        else if (open)
            term->flags |= open_flag;
        if (*side != 0)
            term->flags |= VERIFY;
    }
    Py_DECREF(object);
    return failed;
}

static int read_numbers(PyObject *constraint, Term *term)
{
    term->lo = -INFINITY;
    term->hi = INFINITY;
    if (read_bound(constraint, str_low, str_low_open, LO_OPEN, term, &term->lo, &term->lo_side) < 0 ||
        read_bound(constraint, str_high, str_high_open, HI_OPEN, term, &term->hi, &term->hi_side) < 0)
        return -1;
    PyObject *excluded = PyObject_GetAttr(constraint, str_excluded);
    if (excluded == NULL)
        return -1;
    if (PyTuple_GET_SIZE(excluded) > 0)
        term->flags |= VERIFY;
    Py_DECREF(excluded);
    if (term->flags & VERIFY)
        term->constraint = constraint;
    else if (term->lo == term->hi)
        term->flags |= EQUAL;
    return 0;
}

static int read_like(PyObject *like, Term *term, int alone)
{
    PyObject *pattern = PyObject_GetAttr(like, str_pattern);
    PyObject *shape = pattern ? PyObject_GetAttr(pattern, str_shape) : NULL;
    PyObject *literal = pattern ? PyObject_GetAttr(pattern, str_literal) : NULL;
    int wanted = shape && literal ? read_flag(like, str_wanted) : -1;
    int text = TEXT_NONE;
    if (wanted > 0)
        text = shape == shape_prefix     ? TEXT_PREFIX
               : shape == shape_suffix   ? TEXT_SUFFIX
               : shape == shape_contains ? TEXT_CONTAINS
                                         : TEXT_NONE;
    int failed = wanted < 0;
    if (text == TEXT_PREFIX) {
        double first = text_position(literal, 0), last = text_position(literal, 255);
        failed = first < 0 || last < 0;
        term->lo = first > term->lo ? first : term->lo;
        term->hi = last < term->hi ? last : term->hi;
    }
    if (alone && text != TEXT_NONE) {
        term->text = (uint8_t)text;
        term->literal = literal; /* lives as long as the constraint */
    }
    else
        term->flags |= VERIFY | LOOSE;
    Py_XDECREF(pattern);
    Py_XDECREF(shape);
    Py_XDECREF(literal);
    return failed ? -1 : 0;
}

static int read_text_bound(PyObject *bound, Term *term, int alone)
{
    PyObject *limit = PyObject_GetAttr(bound, str_limit);
    int below = limit ? read_flag(bound, str_below) : -1;
    double position = below >= 0 ? text_position(limit, 0) : -1;
    Py_XDECREF(limit);
    if (position < 0)
        return -1;
    if (below && position < term->hi)
        term->hi = position;
    if (!below && position > term->lo)
        term->lo = position;
    term->flags |= alone ? VERIFY : VERIFY | LOOSE;
    return 0;
}

static int read_strings(PyObject *constraint, Term *term)
{
    term->constraint = constraint;
    term->lo = 0;
    term->hi = TEXT_END;
    PyObject *equal = PyObject_GetAttr(constraint, str_equal);
    if (equal == NULL)
        return -1;
    Py_DECREF(equal); /* lives as long as the constraint */
    if (equal != Py_None) {
        term->flags |= EQUAL;
        term->literal = equal;
        term->lo = term->hi = text_position(equal, 0);
        return term->lo < 0 ? -1 : 0;
    }
    PyObject *conditions = PyObject_GetAttr(constraint, str_conditions);
    if (conditions == NULL)
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(conditions);
    int failed = 0;
    for (Py_ssize_t at = 0; at < count && !failed; at++) {
        PyObject *condition = PyTuple_GET_ITEM(conditions, at);
        failed = (PyObject *)Py_TYPE(condition) == like_type ? read_like(condition, term, count == 1)
                                                              : read_text_bound(condition, term, count == 1);
    }
    Py_DECREF(conditions);
    return failed;
}

static int read_booleans(PyObject *constraint, Term *term)
{
    int yes = read_flag(constraint, str_true), no = read_flag(constraint, str_false);
    if (yes < 0 || no < 0)
        return -1;
    term->lo = no ? 0 : 1;
    term->hi = yes ? 1 : 0;
    if (yes != no)
        term->flags |= EQUAL;
    return 0;
}

static int read_constraint(PyObject *constraint, Term *term)
{
    PyObject *type = (PyObject *)Py_TYPE(constraint);
    if (type == numbers_type) {
        term->kind = NUM;
        return read_numbers(constraint, term);
    }
    if (type == strings_type) {
        term->kind = STR;
        return read_strings(constraint, term);
    }
    if (type == booleans_type) {
        term->kind = BOOL;
        return read_booleans(constraint, term);
    }
    if (type == any_type) {
        term->kind = ANY;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s is not a constraint of the language", Py_TYPE(constraint)->tp_name);
    return -1;
}

static int intern_attribute(Index *index, PyObject *name, uint32_t *attribute)
{
    uint32_t id;
    if (index->free_attribute_count > 0)
        id = index->free_attributes[--index->free_attribute_count];
    else {
        if (index->attribute_count == ATTRIBUTES_MAX) {
            PyErr_SetString(PyExc_ValueError, "more than a million attribute names in one matcher");
            return -1;
        }
        if (index->attribute_count == index->attribute_room) {
            uint32_t room = index->attribute_room ? index->attribute_room * 2 : 32;
            index->names = GROW(index->names, PyObject *, room);
            index->uses = GROW(index->uses, uint32_t, room);
            index->values = GROW(index->values, Value, room);
            index->free_attributes = GROW(index->free_attributes, uint32_t, room);
            memset(index->values + index->attribute_room, 0, sizeof(Value) * (room - index->attribute_room));
            index->attribute_room = room;
        }
        id = index->attribute_count++;
    }
    PyObject *number = PyLong_FromUnsignedLong(id);
    if (number == NULL || PyDict_SetItem(index->attribute_ids, name, number) < 0) {
        Py_XDECREF(number);
        index->free_attributes[index->free_attribute_count++] = id;
        return -1;
    }
    Py_DECREF(number);
    index->names[id] = Py_NewRef(name);
    index->names_version++;
    index->uses[id] = 0;
    *attribute = id;
    return 0;
}

/* Fill in the terms of a filter by ascending attribute; the count, or -1 with an error set. */
int read_filter(Index *index, PyObject *filter, Term *terms, int intern)
{
    PyObject *constraints = PyObject_GetAttr(filter, str_constraints);
    if (constraints == NULL || !PyDict_Check(constraints)) {
        Py_XDECREF(constraints);
        PyErr_Format(PyExc_TypeError, "expected a Filter, not %s", Py_TYPE(filter)->tp_name);
        return -1;
    }
    PyObject *name, *constraint;
    Py_ssize_t place = 0;
    int count = 0;
    while (PyDict_Next(constraints, &place, &name, &constraint)) {
        Term term = {0};
        PyObject *id = PyDict_GetItemWithError(index->attribute_ids, name);
        if (id != NULL)
            term.attribute = (uint32_t)PyLong_AsUnsignedLong(id);
        else if (PyErr_Occurred() || (intern && intern_attribute(index, name, &term.attribute) < 0))
            goto failed;
        else if (!intern)
            term.attribute = ATTRIBUTES_MAX;
        if (count == TERMS_MAX) {
            PyErr_SetString(PyExc_ValueError, "a filter with too many attributes");
            goto failed;
        }
        if (read_constraint(constraint, &term) < 0)
            goto failed;
        int at = count++;
        for (; at > 0 && terms[at - 1].attribute > term.attribute; at--)
            terms[at] = terms[at - 1];
        terms[at] = term;
    }
    Py_DECREF(constraints); /* the filter keeps them alive */
    return count;
failed:
    Py_DECREF(constraints);
    return -1;
}

/* ---- does it admit a value? ---- */

static int same_text(PyObject *a, PyObject *b)
{
    return a == b || PyUnicode_Compare(a, b) == 0;
}

/* Whether a value is the one that an EQUAL term asks for. */
int value_is(const Value *value, const Term *equal)
{
    if (value->kind != equal->kind)
        return 0;
    if (value->kind == STR)
        return same_text(value->object, equal->literal);
    return value->x == equal->lo && value->side == 0;
}

static int ask(PyObject *constraint, PyObject *question, PyObject *about)
{
    PyObject *answer = PyObject_CallMethodOneArg(constraint, question, about);
    if (answer == NULL)
        return -1;
    int yes = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return yes;
}

/* 1, 0, or -1 with an error set. */
int term_admits(uint32_t head, double lo, double hi, PyObject *constraint, PyObject *literal, Value *value)
{
    unsigned kind = head_kind(head), flags = head_flags(head);
    if (kind == ANY)
        return 1;
    if (kind != value->kind)
        return 0;
    if (kind == STR) {
        if (flags & VERIFY)
            return ask(constraint, str_admits, value->object);
        if (flags & EQUAL)
            return same_text(value->object, literal);
        switch (head_text(head)) {
        case TEXT_PREFIX:
            return (int)PyUnicode_Tailmatch(value->object, literal, 0, PY_SSIZE_T_MAX, -1);
        case TEXT_SUFFIX:
            return (int)PyUnicode_Tailmatch(value->object, literal, 0, PY_SSIZE_T_MAX, 1);
        case TEXT_CONTAINS:
            return PyUnicode_Contains(value->object, literal);
        default:
            return 1;
        }
    }
    double x = value->x;
    if (x < lo || x > hi)
        return 0;
    if (flags & VERIFY)
        return ask(constraint, str_admits, value->object);
    if (x == lo && (value->side < 0 || (value->side == 0 && (flags & LO_OPEN))))
        return 0;
    if (x == hi && (value->side > 0 || (value->side == 0 && (flags & HI_OPEN))))
        return 0;
    return 1;
}

/* Whether the publication that was read last satisfies what the record asks beyond its cluster's equalities. */
int record_admits(Index *index, const Record *record)
{
    const uint32_t *heads = record_heads(record);
    const double *bounds = record_bounds(record);
    PyObject **objects = record->has_objects ? record_objects(record) : NULL;
    for (unsigned at = 0; at < record->term_count; at++) {
        Value *value = &index->values[head_attribute(heads[at])];
        if (value->stamp != index->stamp)
            return 0;
        if (head_kind(heads[at]) == NUM && value->kind == NUM && value->x > bounds[2 * at] && value->x < bounds[2 * at + 1] &&
            !(head_flags(heads[at]) & VERIFY))
            continue; /* the most frequent case */
        int admits = term_admits(heads[at], bounds[2 * at], bounds[2 * at + 1], objects ? objects[2 * at] : NULL,
                                 objects ? objects[2 * at + 1] : NULL, value);
        if (admits <= 0)
            return admits;
    }
    return 1;
}

/* ---- does it cover a term? ---- */

void term_of_record(const Record *record, unsigned number, Term *term)
{
    uint32_t head = record_heads(record)[number];
    PyObject **objects = record->has_objects ? record_objects(record) : NULL;
    *term = (Term){
        .attribute = head_attribute(head),
        .kind = (uint8_t)head_kind(head),
        .flags = (uint8_t)head_flags(head),
        .text = (uint8_t)head_text(head),
        .lo = record_bounds(record)[2 * number],
        .hi = record_bounds(record)[2 * number + 1],
        .constraint = objects ? objects[2 * number] : NULL,
        .literal = objects ? objects[2 * number + 1] : NULL,
    };
}

static PyObject *constraint_of_numbers(const Term *term)
{
    if (term->constraint != NULL)
        return Py_NewRef(term->constraint);
    PyObject *low = isinf(term->lo) ? Py_NewRef(Py_None) : PyFloat_FromDouble(term->lo);
    PyObject *high = isinf(term->hi) ? Py_NewRef(Py_None) : PyFloat_FromDouble(term->hi);
    PyObject *made = NULL;
    if (low && high)
        made = PyObject_CallFunctionObjArgs(numbers_type, low, term->flags & LO_OPEN ? Py_True : Py_False, high,
                                            term->flags & HI_OPEN ? Py_True : Py_False, NULL);
    Py_XDECREF(low);
    Py_XDECREF(high);
    return made;
}

static int numbers_cover(const Term *outer, const Term *inner)
{
    if (!((outer->flags | inner->flags) & VERIFY)) {
        if (inner->lo < outer->lo || inner->hi > outer->hi)
            return 0;
        if (inner->lo == outer->lo && (outer->flags & LO_OPEN) && !(inner->flags & LO_OPEN))
            return 0;
        return !(inner->hi == outer->hi && (outer->flags & HI_OPEN) && !(inner->flags & HI_OPEN));
    }
    PyObject *outside = constraint_of_numbers(outer), *inside = outside ? constraint_of_numbers(inner) : NULL;
    int covers = inside ? ask(outside, str_covers, inside) : -1;
    Py_XDECREF(outside);
    Py_XDECREF(inside);
    return covers;
}

/* Whether all that the inner term admits is admitted by the outer one (same attribute); 1, 0, or -1 with an error set. */
int term_covers(const Term *outer, const Term *inner)
{
    if (outer->kind == ANY)
        return 1;
    if (outer->kind != inner->kind)
        return 0;
    switch (outer->kind) {
    case NUM:
        return numbers_cover(outer, inner);
    case STR:
        if (outer->constraint == inner->constraint)
            return 1;
        if (outer->flags & EQUAL && inner->flags & EQUAL)
            return same_text(outer->literal, inner->literal);
        return ask(outer->constraint, str_covers, inner->constraint);
    default:
        return inner->lo >= outer->lo && inner->hi <= outer->hi;
    }
}

const Term *term_on(const Term *terms, int count, uint32_t attribute)
{
    for (int at = 0; at < count; at++)
        if (terms[at].attribute == attribute)
            return &terms[at];
    return NULL;
}

/* Whether terms cover a record together with the equalities of its cluster. */
int terms_cover_record(const Term *outer, int outer_count, const Record *inner)
{
    const Cluster *cluster = inner->cluster;
    for (int at = 0; at < outer_count; at++) {
        const Term *asked = &outer[at];
        const Term *answer = term_on(cluster->equals, (int)cluster->equal_count, asked->attribute);
        Term term;
        for (unsigned number = 0; answer == NULL && number < inner->term_count; number++)
            if (head_attribute(record_heads(inner)[number]) == asked->attribute) {
                term_of_record(inner, number, &term);
                answer = &term;
            }
        int covers = answer ? term_covers(asked, answer) : 0;
        if (covers <= 0)
            return covers;
    }
    return 1;
}

/* Whether a record covers terms that have the equalities of its cluster. */
int record_covers_terms(const Record *outer, const Term *inner, int inner_count)
{
    for (unsigned number = 0; number < outer->term_count; number++) {
        Term asked;
        term_of_record(outer, number, &asked);
        const Term *answer = term_on(inner, inner_count, asked.attribute);
        int covers = answer ? term_covers(&asked, answer) : 0;
        if (covers <= 0)
            return covers;
    }
    return 1;
}
