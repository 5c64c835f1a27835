//go:build unix

package notify_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/harpcaller/harp/notify"
)

// TestSecretIsPipe: a pipe that nobody writes into keeps nobody waiting.
func TestSecretIsPipe(t *testing.T) {
	w, folder, _ := newWebhooks(t, notify.WebhookConfig{})
	if err := unix.Mkfifo(filepath.Join(folder, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Check(receiver("https://example.com", "pipe")); err == nil || !strings.HasSuffix(err.Error(), `"pipe": is no file`) {
		t.Error(err)
	}
}
