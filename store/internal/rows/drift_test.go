package rows

import (
	"errors"
	"fmt"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// TestForgetDriftIsBrokenOff: a dispatcher is killed as one of the commits fails in which the marks under a name are forgotten. Some of them
// are there then, and the name: asked again by its id, or by another one, the rest is forgotten, and the first id's count is of all.
func TestForgetDriftIsBrokenOff(t *testing.T) {
	const marks = 2*maxDue + 100
	for fails := range 4 {
		for _, isSame := range []bool{true, false} {
			t.Run(fmt.Sprint(fails, isSame), func(t *testing.T) {
				e := closed(t, func(*Store) {})
				var writes []Write
				put := func(key []byte, row any) {
					value, _ := split(key, encode(row))
					writes = append(writes, Write{key, value})
				}
				own := driftKey("base", "")
				writes = append(writes, Write{own, sealNumbers(own, 1)})
				for n := range marks {
					put(driftKey("base", fmt.Sprintf("h%d", n)), &driftRow{Mark: harp.DriftDirty, Since: noon, Checked: noon, Sent: noon})
				}
				put(driftKey("other", "h"), &driftRow{Mark: harp.DriftClean, Since: noon, Checked: noon, Sent: noon})
				if err := e.Commit(writes); err != nil {
					t.Fatal(err)
				}
				s := opened(t, e, Options{})
				op := store.Operation{ID: harp.NewID(), Time: noon}
				left := fails
				e.onCommit = func([]Write) error {
					if left--; left < 0 {
						return errors.New("trouble")
					}
					return nil
				}
				_, err := s.ForgetDrift(t.Context(), "base", op)
				e.onCommit = nil
				if (err != nil) != (fails < 3) {
					t.Fatalf("with commit %d failing it gives %v", fails, err)
				}
				if err := s.Close(); err != nil && !errors.Is(err, store.ErrPoisoned) {
					t.Fatal(err)
				}
				s = opened(t, e, Options{})
				there := e.count(driftKey("base", "")...)
				want := marks
				if !isSame {
					op.ID, want = harp.NewID(), there-1
				}
				n, err := s.ForgetDrift(t.Context(), "base", op)
				switch {
				case fails == 3 && !isSame:
					if !errors.Is(err, harp.ErrNotFound) {
						t.Errorf("another one is told %v", err)
					}
				case n != want || err != nil:
					t.Errorf("%d are forgotten of %d: %v", n, want, err)
				}
				if there := e.count(driftKey("base", "")...); there != 0 || e.count(driftKey("other", "")...) != 1 {
					t.Errorf("there are left %d rows", there)
				}
			})
		}
	}
}
