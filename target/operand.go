package target

import (
	"cmp"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// operand is what a comparison compares with, ready for use.
type operand struct {
	kind    nodeKind
	op      operator
	text    string
	pattern pattern
	regexp  *regexp.Regexp
	network netip.Prefix
	number  number // if the text is one
	age     time.Duration
}

// newOperand prepares what was checked when it was parsed.
func newOperand(kind nodeKind, op operator, text string) *operand {
	o := operand{kind: kind, op: op, text: text, number: parseNumber(text)}
	switch kind {
	case nodePattern:
		o.pattern, _, _ = parsePattern(text, 0)
	case nodeRegexp:
		o.regexp = compileRegexp(text)
	case nodeNetwork:
		o.network, _ = netip.ParsePrefix(text)
	default:
	}
	if op.isOrder() {
		o.age, _ = parseAge(text)
	}
	return &o
}

// matchText compares a text.
func (o *operand) matchText(text string) bool {
	switch {
	case o.op.isOrder():
		return o.inOrder(CompareVersions(text, o.text))
	case o.kind == nodePattern:
		return o.pattern.match(text)
	case o.kind == nodeRegexp:
		return o.regexp.MatchString(text)
	}
	return text == o.text
}

// inOrder reports whether the operator holds for what comes before (-1), at the place of
// (0) or after (1) the operand.
func (o *operand) inOrder(c int) bool {
	switch o.op {
	case opLess:
		return c < 0
	case opLessEqual:
		return c <= 0
	case opGreater:
		return c > 0
	default:
		return c >= 0
	}
}

// isPresence reports whether the operand is *, which asks only whether there is a value.
func (o *operand) isPresence() bool { return o.kind == nodePattern && o.pattern.isAll() }

// matchValue compares a value; of one that is a list, any element.
func (o *operand) matchValue(value any) bool {
	if value == nil {
		return false
	}
	if o.isPresence() {
		return true
	}
	switch v := value.(type) {
	case string:
		return o.matchText(v)
	case bool:
		return !o.op.isOrder() && o.matchText(strconv.FormatBool(v))
	case []string:
		return o.matchList(v)
	case []any:
		return slices.ContainsFunc(v, o.matchValue)
	}
	n := numberOf(value)
	return n.ok && o.matchNumber(n)
}

// matchNumber compares numbers as numbers; patterns, regular expressions and versions
// see their decimal text.
func (o *operand) matchNumber(n number) bool {
	switch {
	case o.kind != nodeName || o.op.isOrder() && !o.number.ok:
		return o.matchText(n.String())
	case !o.number.ok:
		return false
	case o.op.isOrder():
		return !n.isNaN() && o.inOrder(n.compare(o.number))
	}
	return !n.isNaN() && n.compare(o.number) == 0
}

// matchList reports whether one of some texts is like the operand. Where nothing is
// known of them the list is nil.
func (o *operand) matchList(list []string) bool {
	return list != nil && (o.isPresence() || slices.ContainsFunc(list, o.matchText))
}

// matchAddresses reports whether one of some addresses is like the operand.
func (o *operand) matchAddresses(addresses []netip.Addr) bool {
	return slices.ContainsFunc(addresses, o.matchAddress)
}

func (o *operand) matchAddress(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if o.kind == nodeNetwork {
		return o.network.Contains(addr)
	}
	return o.matchText(addr.String())
}

// matchAge compares how long ago something was, if it ever was.
func (o *operand) matchAge(age time.Duration, ever bool) bool {
	return ever && (!o.op.isOrder() || o.inOrder(cmp.Compare(age, o.age)))
}

// number is an integer or a floating-point number.
type number struct {
	ok       bool
	integral bool
	negative bool
	integer  uint64 // its absolute value
	float    float64
}

func signed(v int64) number {
	n := number{ok: true, integral: true, negative: v < 0, integer: uint64(v), float: float64(v)}
	if n.negative {
		n.integer = -n.integer
	}
	return n
}

func unsigned(v uint64) number {
	return number{ok: true, integral: true, integer: v, float: float64(v)}
}

// numberOf returns a value that is a number.
func numberOf(value any) number {
	switch v := value.(type) {
	case int:
		return signed(int64(v))
	case int8:
		return signed(int64(v))
	case int16:
		return signed(int64(v))
	case int32:
		return signed(int64(v))
	case int64:
		return signed(v)
	case uint:
		return unsigned(uint64(v))
	case uint8:
		return unsigned(uint64(v))
	case uint16:
		return unsigned(uint64(v))
	case uint32:
		return unsigned(uint64(v))
	case uint64:
		return unsigned(v)
	case float32:
		return number{ok: true, float: float64(v)}
	case float64:
		return number{ok: true, float: v}
	}
	return number{}
}

// parseNumber returns the number that a text is, in decimal digits.
func parseNumber(text string) number {
	for i := range len(text) {
		if c := text[i]; !isDigit(c) && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			return number{}
		}
	}
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return signed(v)
	}
	if v, err := strconv.ParseUint(text, 10, 64); err == nil {
		return unsigned(v)
	}
	v, err := strconv.ParseFloat(text, 64)
	return number{ok: err == nil, float: v}
}

func (n number) isNaN() bool { return math.IsNaN(n.float) }

// compare compares integers exactly, others as floating-point numbers.
func (n number) compare(other number) int {
	switch {
	case !n.integral || !other.integral:
		return cmp.Compare(n.float, other.float)
	case n.negative != other.negative:
		if n.negative {
			return -1
		}
		return 1
	case n.negative:
		return cmp.Compare(other.integer, n.integer)
	}
	return cmp.Compare(n.integer, other.integer)
}

// String returns the shortest decimal text.
func (n number) String() string {
	if !n.integral {
		return strconv.FormatFloat(n.float, 'f', -1, 64)
	}
	text := strconv.FormatUint(n.integer, 10)
	if n.negative {
		return "-" + text
	}
	return text
}
