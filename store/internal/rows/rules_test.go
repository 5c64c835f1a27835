//go:build !race

package rows_test

import (
	"testing"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/store/storetest"
)

// TestRules goes through the rules of every store, which are those of this package.
func TestRules(t *testing.T) {
	storetest.Test(t, func(*testing.T) store.Store { return memory.Open(nil) })
	storetest.Reopen(t, func(*testing.T) func() (store.Store, error) {
		d := memory.NewDisk()
		return func() (store.Store, error) { return memory.OpenDisk(d, nil), nil }
	})
}
