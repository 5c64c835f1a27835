package store

import (
	"context"

	"github.com/harpcaller/harp"
)

// Drifts keeps what checks have found of hosts: a mark for each host and name. A job with a Drift writes that of its host in the
// commit in which it ends, or in which its late outcome is noted, as harp.DriftOf says of its value: unless it did not run, or the
// mark is of a check that was sent later. One that ran, or may have, and did not succeed makes it harp.DriftUnknown. A mark that
// changes is told by an event. Marks outlive their jobs, and go with their hosts.
//
// A batch whose members have a Drift makes the name one of at most harp.MaxDrifts, in the commit that stores it. Under a name
// that was forgotten since no mark is written.
type Drifts interface {
	// Drift returns the mark of a host under a name. Errors: harp.ErrNotFound.
	Drift(ctx context.Context, host, name string) (harp.DriftStatus, error)

	// ListDrift returns up to limit marks, by name and host in an order of the store's, from the one after the cursor,
	// without any that cannot be read. Errors: harp.ErrInvalid (cursor).
	ListDrift(ctx context.Context, cursor string, limit int) (page []harp.DriftStatus, next string, err error)

	// ForgetDrift deletes all marks under a name, in as few commits as their number allows, and the name with the last,
	// and returns how many these were. Asked again under the same id it goes on where it was broken off, or
	// changes nothing, and returns the same. Errors: harp.ErrNotFound, harp.ErrConflict, harp.ErrInvalid (id) and
	// harp.ErrPruned as CancelQueue.
	ForgetDrift(ctx context.Context, name string, op Operation) (int, error)
}
