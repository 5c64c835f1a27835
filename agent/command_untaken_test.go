//go:build linux

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/wire"
)

// long prints a result that is long.
const long = `
long:
  command: [/bin/sh, -c, 'head -c 10000 /dev/zero | tr "\0" x']
  result: {from: stdout}
`

// TestEndsThatAreNotTakenKeepOtherResultsWaiting checks that commands with long results, whose ends a dispatcher does not
// take for a while, as one whose disk is full, are in nobody's way: few long results are handed to the journal at a time.
func TestEndsThatAreNotTakenKeepOtherResultsWaiting(t *testing.T) {
	c := &commander{t: t, d: listen(t, loopback{}), dir: t.TempDir(), load: procedureDir(t, long)}
	c.boot()
	over, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var untaken []func()
	for n := range 8 {
		x := c.peer.call("long", nil)
		for end := (wire.End{}); end.Value == nil; {
			f, err := x.x.Receive(over)
			if err != nil {
				t.Fatalf("command %d does not end: %v", n+1, err)
			}
			if f.Type == wire.TypeEnd {
				if err := wire.Decode(f.Body, &end); err != nil || end.Value == nil {
					t.Fatalf("command %d ended with %+v, %v", n+1, end, err)
				}
				untaken = append(untaken, func() { x.ackEnd(end) })
			}
		}
	}
	for _, take := range untaken {
		take()
	}
	c.nothingLeft()
}
