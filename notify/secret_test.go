package notify_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
)

// TestSecrets: a secret is a file in one folder, and nothing of it is told.
func TestSecrets(t *testing.T) {
	outside := t.TempDir()
	newSecret(t, outside, "far")
	w, folder, _ := newWebhooks(t, notify.WebhookConfig{})
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
	}
	write("least", of(24))
	write("most", of(64)+"\r\n")
	write("short", of(23))
	write("long", of(65))
	write("unlike", "sekrit")
	write("base64", "whsec_sekrit!")
	write("two", of(24)+"\n"+of(24))
	write("empty", "")
	write("loose", strings.Replace(of(25), "aw==", "ax==", 1))
	write("endless", of(24)+strings.Repeat(" ", 1<<20))
	if err := errors.Join(
		os.Mkdir(filepath.Join(folder, "folder"), 0o700),
		os.Symlink(filepath.Join(outside, "far"), filepath.Join(folder, "out")),
		os.Symlink("../"+filepath.Base(outside)+"/far", filepath.Join(folder, "up")),
		os.Symlink("least", filepath.Join(folder, "in")),
		os.Symlink("folder/..", filepath.Join(folder, "self")),
	); err != nil {
		t.Fatal(err)
	}
	newSecret(t, filepath.Join(folder, "folder"), "inner")

	const content = "does not hold whsec_ and 24 to 64 bytes as base64"
	for _, c := range []struct{ names, wrong string }{
		{"main", ""},
		{"least most", ""},
		{"in", ""},
		{"", `are 0, must be 1 or, while one is replaced, 2`},
		{"main least most", `are 3, must be 1 or, while one is replaced, 2`},
		{"missing", `"missing": there is no such file in the dispatcher's folder of secrets`},
		{"main missing", `"missing": there is no such file in the dispatcher's folder of secrets`},
		{"short", `"short": ` + content},
		{"long", `"long": ` + content},
		{"unlike", `"unlike": ` + content},
		{"base64", `"base64": ` + content},
		{"two", `"two": ` + content},
		{"empty", `"empty": ` + content},
		{"loose", `"loose": ` + content},
		{"endless", `"endless": ` + content},
		{"folder", `"folder": is no file`},
		{"self", `"self": is no file`},
		{"out", `"out": the file cannot be read`},
		{"up", `"up": the file cannot be read`},
		{"folder/inner", `"folder/inner": is no plain name of a file`},
		{`a\b`, `"a\\b": is no plain name of a file`},
		{"..", `"..": is no plain name of a file`},
		{"../far", `"../far": is no plain name of a file`},
		{filepath.Join(outside, "far"), "is no plain name of a file"},
		{"a\x00b", `"a\x00b": is no plain name of a file`},
		{strings.Repeat("a", 256), "is no plain name of a file"},
	} {
		r := receiver("https://example.com")
		r.Webhook.Secrets = strings.Fields(c.names)
		err := w.Check(r)
		var field *harp.FieldError
		switch {
		case c.wrong == "":
			if err != nil {
				t.Errorf("%s: %v", c.names, err)
			}
		case !errors.As(err, &field) || field.Field != "to.webhook.secrets" || !strings.HasSuffix(field.Message, c.wrong):
			t.Errorf("%s: %v, want %s", c.names, err, c.wrong)
		case strings.Contains(err.Error(), "sekrit") || strings.Contains(err.Error(), "a2tr") || strings.Contains(err.Error(), folder):
			t.Errorf("%s: %v tells too much", c.names, err)
		}
		if c.wrong == "" {
			continue
		}
		if got := failed(t, w.Send(t.Context(), r, message())); got.Final || !strings.HasSuffix(got.Answer, c.wrong) {
			t.Errorf("%s: sending: %+v", c.names, got)
		}
	}
	none, err := notify.NewWebhooks(notify.WebhookConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Check(receiver("https://example.com")); err == nil || !strings.Contains(err.Error(), "names no folder") {
		t.Error(err)
	}
}
