package rows

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/harpcaller/harp/store"
)

// TestNothingIsSaidOfAWholeStore restores backups of stores that nothing is lost of, and opens them: the log
// tells of no damage.
func TestNothingIsSaidOfAWholeStore(t *testing.T) {
	for name, do := range map[string]func(s *Store){
		"empty": func(*Store) {},
		"ended": func(s *Store) { applied(t, s, about(started(t, s), store.End)) },
		"runs":  func(s *Store) { started(t, s) },
		"waits": func(s *Store) { submitted(t, s, inQueue(call("h"), 0, 1)) },
		"batch": func(s *Store) { begin(t, s, onHosts(4)) },
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			opts := Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}
			e := newTrial()
			s := opened(t, e, opts)
			do(s)
			into := newTrial()
			if _, err := Restore(into, backedUp(t, s), noon, opts); err != nil {
				t.Fatal(err)
			}
			opened(t, into, opts)
			if said.Len() > 0 {
				t.Errorf("it says:\n%s", said.String())
			}
		})
	}
}
