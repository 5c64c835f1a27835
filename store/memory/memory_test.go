package memory

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Test(t, func(*testing.T) store.Store { return Open(nil) })
}

// TestReopen opens stores over an engine that outlives them, so that what only the
// rows say is tried without a disk.
func TestReopen(t *testing.T) {
	storetest.Reopen(t, func(*testing.T) func() (store.Store, error) {
		e := newEngine()
		return func() (store.Store, error) { return open(e, nil), nil }
	})
}
