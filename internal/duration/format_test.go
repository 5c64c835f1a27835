package duration_test

import (
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/duration"
)

func TestFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h",
		90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", -time.Hour: "-1h", 48 * time.Hour: "48h",
	} {
		if got := duration.Format(d); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
}
