//go:build unix

package calendar_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/calendar"
)

// To open a pipe waits for who writes into it, for ever perhaps, and no other calendar is fetched meanwhile.
func TestATokenThatIsAPipeIsNotRead(t *testing.T) {
	url, config := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	config.Tokens = t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(config.Tokens, strings.TrimPrefix(url, "https://")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newFetcher(t, config).Fetch(t.Context(), url, calendar.Version{}); err == nil || err.Error() != "the token of its host cannot be read" {
		t.Errorf("it is %v", err)
	}
}
