package duration_test

import (
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/duration"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{"5s": 5 * time.Second, "1h30m": 90 * time.Minute, "-2s": -2 * time.Second, "30d": 720 * time.Hour, "1w": 168 * time.Hour, "4681w": 4681 * 168 * time.Hour, "0": 0} {
		if got, err := duration.Parse(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "-5", "1.5", "d", "1.5d", "99999999d", "w", "4682w", "9223372036854775807w", "1w2d", "5 s", "soon"} {
		if got, err := duration.Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
