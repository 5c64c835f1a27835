package dispatcher_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
)

// A host that comes and goes all the time fills no log with that: each is logged the first time, and then how often,
// once a minute.
func TestLinesOfAHostThatComesAndGoesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		sys := newSystem(t, inMemory, nil, dispatcher.Config{})
		sys.online.Handler = slog.NewTextHandler(&out, nil)
		const times = 20
		for range times {
			a, err := sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"})
			if err != nil {
				t.Fatal(err)
			}
			a.tr.Close(nil)
			synctest.Wait()
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, message := range []string{"host is online", "host is away"} {
			var lines []string
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, message) {
					lines = append(lines, line)
				}
			}
			if len(lines) != 2 || !strings.Contains(lines[1], "times=19") {
				t.Errorf("%q is logged %d times: %s", message, len(lines), lines)
			}
		}
	})
}
