package harp

import (
	"context"
	"iter"
	"time"

	"github.com/harpcaller/harp/internal/msgpack"
)

// DriftMark says whether a host is as it should be, as the last check of it found.
type DriftMark string

// The marks.
const (
	DriftClean   DriftMark = "clean"   // there was nothing to change
	DriftDirty   DriftMark = "dirty"   // something would be changed
	DriftUnknown DriftMark = "unknown" // it was never checked, or the last check failed or did not say
)

// DriftStatus is the mark of a host under the name of a check: see [Drift].
type DriftStatus struct {
	Host    string    `json:"host" msgpack:"host"`
	Name    string    `json:"name" msgpack:"name"`
	Mark    DriftMark `json:"mark" msgpack:"mark"`
	Since   time.Time `json:"since" msgpack:"since"`     // when the mark became what it is; UTC
	Checked time.Time `json:"checked" msgpack:"checked"` // when the last check ended; UTC
	Job     string    `json:"job" msgpack:"job"`         // that check, which may be pruned by now
}

// Drift has each member of a batch mark its host under a name when it ends, by what it returned: [DriftOf]. Targets
// select by the marks, as host.drift.NAME=dirty, so that another batch can mend what the check found. Each member has to be a
// [DryRun], and the procedure must have a dry run of its own, the trait [TraitDryRun].
//
// A member that did not run leaves its host's mark as it is, and so does a check that was sent before the one that the mark is
// of. One that ran, or may have, and did not succeed makes it DriftUnknown.
func Drift(name string) Option {
	return func(o *CallOptions) { o.Batch.Drift, o.set.batch.drift = name, true }
}

// DriftOf says what the result of a dry run tells of its host. It is a map with "changed", a bool, or "changes", a list or a
// map of what would be changed; nil counts as an empty one, which it is in Go. If either says that there is something the
// mark is DriftDirty, if either says that there is nothing DriftClean, and of any other result DriftUnknown.
func DriftOf(result Value) DriftMark {
	r := msgpack.NewReader(result)
	if r.Kind() != msgpack.KindMap {
		return DriftUnknown
	}
	mark := DriftUnknown
	for range r.Map() {
		key := ""
		if r.Kind() == msgpack.KindString {
			key = string(r.Text())
		} else {
			r.Skip()
		}
		changed, says := readChange(&r, key)
		switch {
		case !says || mark == DriftDirty:
		case changed:
			mark = DriftDirty
		default:
			mark = DriftClean
		}
	}
	if !r.Done() {
		return DriftUnknown
	}
	return mark
}

// readChange reads a value of a result's map, and whether it says that something would be changed.
func readChange(r *msgpack.Reader, key string) (changed, says bool) {
	var value msgpack.Reader // of its own, as only what is around the value matters
	raw := r.Raw()
	value = msgpack.NewReader(raw)
	switch kind := value.Kind(); {
	case key == "changed" && kind == msgpack.KindBool:
		return value.Bool(), true
	case key == "changes" && kind == msgpack.KindArray:
		return value.Array() > 0, true
	case key == "changes" && kind == msgpack.KindMap:
		return value.Map() > 0, true
	case key == "changes" && kind == msgpack.KindNil:
		return false, true
	}
	return false, false
}

// CheckDriftName returns ErrInvalid, naming the field name, unless a check can have this name: 1 to MaxDriftName bytes of UTF-8.
func CheckDriftName(name string) error { return checkName("name", name, MaxDriftName) }

// Drift yields the marks of the hosts that a target selects, of all if it is empty, by host and name; with a name those under
// that one. A host that was never checked has none, and is DriftUnknown to targets. Errors: ErrInvalid (target, name),
// ErrNotFound (as List), ErrUnavailable, ErrClosed.
func (h *Hosts) Drift(ctx context.Context, expr, name string) iter.Seq2[DriftStatus, error] {
	return pages(func(cursor string) (Page[DriftStatus], error) { return h.service.ListDrift(ctx, expr, name, cursor) })
}

// ForgetDrift forgets all marks under a name, and returns how many these were. Checks under way leave none. The name counts no
// more as one of the [MaxDrifts] that there may be. Errors: ErrInvalid (name), ErrNotFound, ErrUnavailable, ErrClosed.
func (h *Hosts) ForgetDrift(ctx context.Context, name string) (int, error) {
	if err := CheckDriftName(name); err != nil {
		return 0, err
	}
	return h.service.ForgetDrift(ctx, NewID(), name)
}
