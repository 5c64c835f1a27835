package dispatcher

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The first agents that come back after a restart are told the interval that is right
// when all have.
func TestBeatCountsThoseThatReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Dispatcher{cfg: Config{Heartbeat: 10 * time.Second}, hosts: newHosts()}
		if got := d.beat(); got != 10*time.Second {
			t.Errorf("with no agents: %v", got)
		}
		for i := range 2000 {
			d.hosts.await(d.hosts.get(fmt.Sprint("host", i)), time.Now().Add(returningTime))
		}
		if got := d.beat(); got != 20*time.Second {
			t.Errorf("with 2000 that are about to return: %v", got)
		}
		time.Sleep(returningTime)
		if got := d.beat(); got != 10*time.Second {
			t.Errorf("when they have not returned: %v", got)
		}
	})
}
