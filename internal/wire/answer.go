package wire

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/text"
)

// NewRows encodes as many items as an answer holds: at most so many, [MaxPage] bytes of them,
// and at least one.
func NewRows[T any](items []T, most int) Rows {
	var rows Rows
	size := 0
	for i := range items {
		row := Append(nil, &items[i])
		if size += len(row); len(rows) == most || size > MaxPage && len(rows) > 0 {
			break
		}
		rows = append(rows, row)
	}
	return rows
}

// DecodeRows is the inverse of [NewRows]. Errors: msgpack.ErrMalformed.
func DecodeRows[T any](rows Rows) ([]T, error) {
	var items []T
	for _, row := range rows {
		var item T
		if err := DecodeRow(row, &item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// NewEvents returns the answer that holds as many events of a page as it may, at least one.
func NewEvents(p harp.EventPage) Events {
	m := Events{Events: NewRows(p.Events, MaxRows), Cursor: p.Cursor}
	if n := len(m.Events); n < len(p.Events) {
		m.Cursor = p.Events[n-1].Cursor
	}
	return m
}

// What a failure may hold. Whoever reads one cuts it to that, as it is kept, and shown in
// lists. Those of requests travel in a frame that is smaller: of these the text is cut.
const (
	maxFailureText = 4 << 10 // of a request's
	maxFailureWord = 1 << 10
	MaxFailureText = 64 << 10 // of an attempt's
)

// limitFailure cuts what a peer sent to what a failure may hold.
func limitFailure(f *harp.Failure) {
	for _, s := range []*string{&f.Code, &f.Type, &f.Host, &f.Stage, &f.Field, &f.LimitOf, &f.JobID} {
		*s = text.Shorten(*s, maxFailureWord, "…")
	}
	f.Message = text.Shorten(f.Message, MaxFailureText, "…")
	if len(f.Data) > harp.MaxResult {
		f.Data = nil
	}
	if len(f.Fault) > maxFailureWord {
		f.Fault = harp.FaultNone
	}
	if len(f.Ran) > maxFailureWord {
		f.Ran = harp.MayHaveRun
	}
}

// NewFailed returns the answer to a request that failed.
func NewFailed(err error) Failed {
	f := harp.FailureOf(err)
	if f.Fault == harp.FaultUnknown {
		f.Fault = harp.FaultDispatcher // whoever answers could not do what was asked
	}
	limitFailure(&f)
	f.Message = text.Shorten(f.Message, maxFailureText, "…")
	if len(f.Data) > MaxControl/2 {
		f.Data = nil
	}
	return Failed{Failure: f.Err()}
}
