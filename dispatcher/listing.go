package dispatcher

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// listing makes answers of the pages of a Service: a page that is too long for an
// answer is cut, and the cursor then says where to go on within it.
type listing[T any] struct {
	fetch  func(cursor string) (harp.Page[T], error)
	mark   func(T) mark         // where it stands
	before func(a, b mark) bool // whether a stands before b in the listing
}

// mark is a place in a page of a Service: after the item with this key.
type mark struct {
	Cursor string    `msgpack:"c,omitempty"` // of the page
	Key    string    `msgpack:"k"`
	Time   time.Time `msgpack:"t,omitempty"` // of items whose order their keys do not tell
}

// markPrefix tells a cursor within a page from one that the Service made.
const markPrefix = "within."

func (m mark) cursor() string {
	return markPrefix + base64.RawURLEncoding.EncodeToString(wire.Encode(m))
}

// markIn reads a cursor. What is no mark is the Service's to judge.
func markIn(cursor string) mark {
	text, ok := strings.CutPrefix(cursor, markPrefix)
	if !ok {
		return mark{Cursor: cursor}
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return mark{Cursor: cursor}
	}
	var m mark
	if wire.Decode(b, &m) != nil || m.Key == "" {
		return mark{Cursor: cursor}
	}
	return m
}

// page answers a request for a page.
func (l listing[T]) page(q wire.Page) (wire.Rows, string, error) {
	if q.Limit < 0 {
		return nil, "", &harp.FieldError{Field: "limit", Message: "must not be negative"}
	}
	most := wire.MaxRows
	if q.Limit > 0 {
		most = min(q.Limit, wire.MaxRows)
	}
	from := markIn(q.Cursor)
	page, err := l.fetch(from.Cursor)
	if err != nil {
		return nil, "", err
	}
	items := l.after(page.Items, from)
	rows := wire.NewRows(items, most)
	n := len(rows)
	if n == len(items) {
		return rows, page.Cursor, nil
	}
	to := l.mark(items[n-1])
	to.Cursor = from.Cursor
	return rows, to.cursor(), nil
}

// after returns the items that stand after a mark. The marked one may be gone from
// the page by now, and others may have come.
func (l listing[T]) after(items []T, from mark) []T {
	if from.Key == "" {
		return items
	}
	if i := slices.IndexFunc(items, func(t T) bool { return l.mark(t).Key == from.Key }); i >= 0 {
		return items[i+1:]
	}
	i := slices.IndexFunc(items, func(t T) bool { return !l.before(l.mark(t), from) })
	if i < 0 {
		return nil
	}
	return items[i:]
}

// byKey is the order of listings by name.
func byKey(a, b mark) bool { return a.Key < b.Key }
