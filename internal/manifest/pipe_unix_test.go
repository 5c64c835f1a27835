//go:build unix

package manifest_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
)

// To read a pipe waits for who writes into it, for ever perhaps: a dispatcher reads its documents before it serves.
func TestACalendarThatIsAPipeIsRefused(t *testing.T) {
	dir := files(t, map[string]string{"f.yaml": "kind: window\nname: w\ntarget: '*'\ncalendar:\n  file: pipe.ics\n"})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.ics"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Read(dir); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "f.yaml:5: calendar.file: "+filepath.Join(dir, "pipe.ics")+" is no file") {
		t.Errorf("it is %v", err)
	}
}
