package storetest_test

import (
	"testing"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/store/storetest"
)

// The test of a store of your own: each case opens a fresh one, and says which rule it
// checks.
func ExampleTest() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		storetest.Test(t, func(t *testing.T) store.Store {
			st := memory.Open(nil)
			t.Cleanup(func() {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
			return st
		})
	}
}
