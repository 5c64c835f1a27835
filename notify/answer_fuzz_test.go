package notify_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/harpcaller/harp/notify"
)

// FuzzAnswer reads what a receiver may answer: what is told of it is one short line.
func FuzzAnswer(f *testing.F) {
	f.Add(500, "", "", []byte("a\nb\x1b[2J\xff"))
	f.Add(301, "https://a:b@x.invalid/secret", "5", []byte{})
	f.Add(429, "", "99999999999999999999", bytes.Repeat([]byte("x"), 5000))
	f.Fuzz(func(t *testing.T, code int, location, after string, body []byte) {
		response := &http.Response{StatusCode: code, Header: http.Header{"Location": {location}, "Retry-After": {after}}, Body: io.NopCloser(bytes.NewReader(body))}
		err := notify.ReadAnswer(response, time.Unix(1806195600, 0))
		if (err == nil) != (code >= 200 && code < 300) {
			t.Fatalf("%d is %v", code, err)
		}
		var answer *notify.Error
		if err != nil && (!errors.As(err, &answer) || len(answer.Answer) > 310 || answer.After < 0 || answer.After > 24*time.Hour ||
			strings.ContainsFunc(answer.Answer, unicode.IsControl)) {
			t.Errorf("%d: %+v", code, answer)
		}
	})
}
