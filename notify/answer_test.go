package notify_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/notify"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2027, 3, 28, 0, 59, 30, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		" 7 ":                            7 * time.Second,
		"-1":                             0,
		"+1":                             0,
		"1.5":                            0,
		"soon":                           0,
		"86400":                          24 * time.Hour,
		"86401":                          24 * time.Hour,
		strings.Repeat("9", 1000):        24 * time.Hour,
		"Sun, 28 Mar 2027 01:00:00 GMT":  30 * time.Second,
		"Sun, 28 Mar 2027 00:00:00 GMT":  0,
		"Fri, 31 Dec 9999 23:59:59 GMT":  24 * time.Hour,
		"Sunday, 28-Mar-27 01:00:00 GMT": 30 * time.Second,
		"Sun Mar 28 01:00:00 2027":       30 * time.Second,
	} {
		if got := notify.RetryAfter(header, now); got != want {
			t.Errorf("%.40q: %v, want %v", header, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, header := range []string{"", "120", "-5", "99999999999999999999", "Sun, 28 Mar 2027 01:00:00 GMT"} {
		f.Add(header, int64(1806195600))
	}
	f.Fuzz(func(t *testing.T, header string, at int64) {
		now := time.Unix(at%(1<<36), 0)
		got := notify.RetryAfter(header, now)
		if got < 0 || got > 24*time.Hour {
			t.Errorf("%q at %v: %v", header, now, got)
		}
		if date, err := http.ParseTime(header); err == nil && date.After(now) && now.Add(got).After(date) {
			t.Errorf("%q at %v: %v, which is past it", header, now, got)
		}
	})
}

func TestHeaderID(t *testing.T) {
	for id, want := range map[string]string{
		"":                       "",
		"0192-ab_C9":             "0192-ab_C9",
		"a.b":                    "a%2Eb",
		"a b\r\nBcc: é@x":        "a%20b%0D%0ABcc%3A%20%C3%A9%40x",
		"a%2Eb":                  "a%252Eb",
		strings.Repeat("a", 200): strings.Repeat("a", 200),
	} {
		if got := (notify.Message{ID: id}).HeaderID(); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
	a, b := notify.Message{ID: strings.Repeat("a", 201)}, notify.Message{ID: strings.Repeat("a", 202)}
	if a.HeaderID() == b.HeaderID() {
		t.Error("long ids are not told apart")
	}
}
