package notify

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/internal/text"
)

const (
	maxBody  = 2 << 10        // bytes of an answer that are read
	maxLine  = 300            // bytes of an answer that are told
	maxAfter = 24 * time.Hour // that a receiver is left alone for, as it asks
)

// readAnswer returns what an answer says: no error if the message was taken. Of the body of another it reads a beginning. Errors: *Error.
func readAnswer(response *http.Response, now time.Time) error {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	answer := &Error{Gone: code == http.StatusGone}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		answer.After = retryAfter(response.Header.Get("Retry-After"), now)
	}
	said := strconv.Itoa(code)
	if name := http.StatusText(code); name != "" {
		said += " " + name
	}
	if code >= 300 && code < 400 {
		said += redirect(response.Header.Get("Location")) + ": redirects are not followed"
	} else {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // what came is told
		if line := oneLine(string(body)); line != "" {
			said += ": " + line
		}
	}
	answer.Answer = oneLine(said)
	return answer
}

// redirect tells where an answer leads to, without the path, which may be a secret.
func redirect(location string) string {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return ""
	}
	return fmt.Sprintf(" to %s://%s", u.Scheme, u.Host)
}

// retryAfter returns how long a Retry-After asks to be left alone for: seconds, or until a date. 0: it does not say.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseInt(header, 10, 64)
		if err != nil || seconds > int64(maxAfter/time.Second) {
			return maxAfter // more digits than fit are as long
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxAfter)
}

func oneLine(s string) string { return text.Line(s, maxLine) }
