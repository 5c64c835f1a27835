//go:build unix

package supervisor_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
)

func TestResult(t *testing.T) {
	for _, test := range []struct {
		name, script string
		result       supervisor.Result
		want, why    string
	}{
		{"exit code", "echo x", supervisor.Result{From: "exit-code"}, "", ""},
		{"stdout", "printf 'a\\nb'", supervisor.Result{From: "stdout", Max: 3}, "a\nb", ""},
		{"too much stdout", "printf 'a\\nbc'", supervisor.Result{From: "stdout", Max: 3}, "", "too_large"},
		{"last JSON line", `echo '{"a":1}'; echo ' {"a":2} '; echo no`, supervisor.Result{From: "stdout-last-json", Max: 80}, `{"a":2}`, ""},
		{"no line feed", `printf '[1]'`, supervisor.Result{From: "stdout-last-json", Max: 80}, `[1]`, ""},
		{"no JSON line", "echo no", supervisor.Result{From: "stdout-last-json", Max: 80}, "", "not_json"},
		{"no line", "true", supervisor.Result{From: "stdout-last-json", Max: 80}, "", "none"},
		{"a JSON line that is too long", `echo 1; echo '{"a":"xxxxxxxx"}'`, supervisor.Result{From: "stdout-last-json", Max: 8}, "", "too_large"},
		{"file", "printf 'a\\0b' >file", supervisor.Result{From: "file", Path: "file", Max: 80}, "a\x00b", ""},
		{"file by path", "printf abs >abs", supervisor.Result{From: "file", Path: "/abs", Max: 80}, "abs", ""}, // below the folder of the command
		{"no file", "true", supervisor.Result{From: "file", Path: "no", Max: 80}, "", "no_file"},
		{"too large a file", "echo long >long", supervisor.Result{From: "file", Path: "long", Max: 2}, "", "too_large"},
		{"a link", "ln -s /etc/passwd link", supervisor.Result{From: "file", Path: "link", Max: 8000}, "", "no_file"},
		{"a pipe", "mkfifo pipe", supervisor.Result{From: "file", Path: "pipe", Max: 80}, "", "no_file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wirings(t, func(t *testing.T, o supervisor.Options) {
				spec := shell(test.script)
				spec.Command.Dir, spec.Result = t.TempDir(), test.result
				if filepath.IsAbs(test.result.Path) {
					spec.Result.Path = filepath.Join(spec.Command.Dir, test.result.Path)
				}
				e := follow(t, start(t, o, spec), 0).end
				if string(e.Result) != test.want || e.ResultErr != test.why || e.From != test.result.From {
					t.Errorf("the result is %q, %q, of %q", e.Result, e.ResultErr, e.From)
				}
			})
		})
	}
}

func TestSecrets(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		token := supervisor.SecretPath("key")
		spec := shell(`stat -c %a "$1" "$(dirname "$1")"; cat "$1"; echo "$1"; echo "$KEY"; cat`, token)
		spec.Command.Env = append(spec.Command.Env, "KEY=<"+token+">")
		spec.Stdin = []byte("at " + token)
		spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("s3cret\n")}}
		l := follow(t, start(t, o, spec), 0)
		lines := strings.Split(l.text("stdout"), "\n")
		if len(lines) != 6 || lines[0] != "600" || lines[1] != "700" || lines[2] != "s3cret" {
			t.Fatalf("it printed %q, and %q", lines, l.text("stderr"))
		}
		path := lines[3]
		if lines[4] != "<"+path+">" || lines[5] != "at "+path {
			t.Errorf("the path is %q, it printed %q", path, lines)
		}
		if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the secret is still there: %v", err)
		}
		if o.Dir == "" {
			return
		}
		spool, err := os.ReadFile(filepath.Join(o.Dir, spec.Job+".1", "spool"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(string(spool), "s3cret\x00", ""), `"Content"`) {
			t.Error("the spool file has the secret in its header")
		}
	})
}

// TestAsAnotherUser checks that the command's user can read its secrets, and that its
// result is no file that it could not read itself.
func TestAsAnotherUser(t *testing.T) {
	needs.Root(t)
	dir := t.TempDir()
	for path := dir; path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for mode, want := range map[fs.FileMode]string{0o644: "result", 0o600: ""} {
			name := rand.Text()
			g := newGate(t)
			openTo65534(t, g.path)
			spec := shell(`cat "$1"; id -u; read -r go <"$2"`, supervisor.SecretPath("key"), g.path)
			spec.Secrets = []supervisor.Secret{{Name: "key", Content: []byte("s3cret\n")}}
			spec.Command.User, spec.Command.Group, spec.Command.Groups = "65534", "65534", []string{}
			spec.Result = supervisor.Result{From: "file", Path: filepath.Join(dir, name), Max: 100}
			h := start(t, o, spec)
			if err := os.WriteFile(filepath.Join(dir, name), []byte("result"), mode); err != nil {
				t.Fatal(err)
			}
			g.open(t)
			l := follow(t, h, 0)
			if got := l.text("stdout"); got != "s3cret\n65534\n" {
				t.Errorf("it printed %q and %q", got, l.text("stderr"))
			}
			if string(l.end.Result) != want || (l.end.ResultErr == "no_file") != (want == "") {
				t.Errorf("%s: the result is %q, %q", name, l.end.Result, l.end.ResultErr)
			}
		}
	})
}

// TestResultOfAGroup checks that a result is found where the command could leave it by a right of
// one of its supplementary groups alone, and not by one that it had not.
func TestResultOfAGroup(t *testing.T) {
	needs.Root(t)
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for _, groups := range [][]string{{"4242", "4243"}, {"4242"}} {
			dir := t.TempDir()
			for path := filepath.Dir(dir); path != os.TempDir(); path = filepath.Dir(path) {
				if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // a directory
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Chown(dir, 0, 4243), os.Chmod(dir, 0o770)); err != nil { //nolint:gosec // a directory
				t.Fatal(err)
			}
			path, script := filepath.Join(dir, "file"), `printf result >"$1"`
			if len(groups) == 1 {
				script = ":"
				if err := os.WriteFile(path, []byte("secret"), 0o644); err != nil { //nolint:gosec // the directory is what keeps others out
					t.Fatal(err)
				}
			}
			spec := shell(script, path)
			spec.Command.User, spec.Command.Group, spec.Command.Groups = "65534", "65534", groups
			spec.Result = supervisor.Result{From: "file", Path: path, Max: 100}
			l := follow(t, start(t, o, spec), 0)
			if want := map[int]string{2: "result"}[len(groups)]; string(l.end.Result) != want || (l.end.ResultErr == "no_file") != (want == "") {
				t.Errorf("with %v the result is %q, %q: %q", groups, l.end.Result, l.end.ResultErr, l.text("stderr"))
			}
		}
	})
}

// openTo65534 lets another user read a file, and enter the folders above it.
func openTo65534(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // that is what is wanted
		t.Fatal(err)
	}
	for path := filepath.Dir(path); path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // a directory
			t.Fatal(err)
		}
	}
}

func TestJSONLines(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell(`echo '{"n":1}'; echo text; echo '{"n":2}' >&2`)
		spec.Records = supervisor.SplitJSON
		l := follow(t, start(t, o, spec), 0)
		if l.text("data") != "{\"n\":1}\n" || l.text("stdout") != "text\n" || l.text("stderr") != "{\"n\":2}\n" {
			t.Errorf("the records are %+v", l.records)
		}
		if !json.Valid([]byte(l.text("data"))) {
			t.Error("data is not JSON")
		}
	})
}

// TestResultFromBeforeTheRun checks that a file that an earlier run has left, or anybody
// else, is not taken for the result of a run that wrote none.
func TestResultFromBeforeTheRun(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want, why    string
	}{
		{"left alone", "cat file", "", "old_file"},
		{"written again", "printf new >file", "new", ""},
		{"written again with what it had", "printf old >file", "old", ""},
		{"replaced", "printf new >tmp; mv tmp file", "new", ""},
		{"added to", "printf new >>file", "oldnew", ""},
		{"written again with its time", "printf new >file; touch -d @1000000000 file", "new", ""},
		{"removed", "rm file", "", "no_file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wirings(t, func(t *testing.T, o supervisor.Options) {
				spec := shell(test.script)
				spec.Command.Dir, spec.Result = t.TempDir(), supervisor.Result{From: "file", Path: "file", Max: 80}
				file := filepath.Join(spec.Command.Dir, "file")
				if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
				was := time.Unix(1_000_000_000, 0)
				if err := os.Chtimes(file, was, was); err != nil {
					t.Fatal(err)
				}
				e := follow(t, start(t, o, spec), 0).end
				if string(e.Result) != test.want || e.ResultErr != test.why {
					t.Errorf("the result is %q, %q", e.Result, e.ResultErr)
				}
			})
		})
	}
}

// TestPrivateDir checks that each command has a directory and a file for its result of
// its own, as its user, which are gone with it.
func TestPrivateDir(t *testing.T) {
	users := []string{""}
	if os.Geteuid() == 0 {
		users = append(users, "65534")
	}
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for _, user := range users {
			for _, script := range []string{`pwd; echo "$HARP_RESULT"; ls -A; echo x >y; printf result >"$HARP_RESULT"`, `pwd; echo "$HARP_RESULT"`} {
				spec := shell(script)
				spec.Private, spec.Command.Dir, spec.Result = true, supervisor.PrivateDir, supervisor.Result{From: "file", Max: 80}
				if user != "" {
					spec.Command.User, spec.Command.Group, spec.Command.Groups = user, user, []string{}
				}
				l := follow(t, start(t, o, spec), 0)
				lines := strings.Split(l.text("stdout"), "\n")
				if len(lines) != 3 || filepath.Dir(lines[0]) != filepath.Dir(lines[1]) {
					t.Fatalf("as %q it printed %q and %q", user, lines, l.text("stderr"))
				}
				wrote := strings.Contains(script, "printf")
				if (string(l.end.Result) == "result") != wrote || (l.end.ResultErr == "no_file") == wrote {
					t.Errorf("as %q the result is %q, %q", user, l.end.Result, l.end.ResultErr)
				}
				if _, err := os.Stat(filepath.Dir(lines[0])); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the directory is still there: %v", err)
				}
			}
		}
	})
}

// TestPrivateTmp checks that each command has a /tmp of its own, in which its secrets, its
// directory and its result are where it is told, and that is gone with it.
func TestPrivateTmp(t *testing.T) {
	needs.Root(t)
	if err := proc.ProbePrivateTmp(); err != nil {
		needs.Missing(t, err)
	}
	wirings(t, func(t *testing.T, o supervisor.Options) {
		for _, user := range []string{"", "65534"} {
			spec := shell(`ls -A /var/tmp; echo x >/tmp/x; cat /var/tmp/x "$1"; echo; pwd; printf result >"$HARP_RESULT"`, supervisor.SecretPath("s"))
			spec.Private, spec.PrivateTmp, spec.Command.Dir, spec.Result = true, true, supervisor.PrivateDir, supervisor.Result{From: "file", Max: 80}
			spec.Secrets = []supervisor.Secret{{Name: "s", Content: []byte("secret")}}
			if user != "" {
				spec.Command.User, spec.Command.Group, spec.Command.Groups = user, user, []string{}
			}
			l := follow(t, start(t, o, spec), 0)
			lines := strings.Split(l.text("stdout"), "\n")
			if len(lines) != 5 || lines[0] == "" || !strings.HasPrefix(lines[3], "/tmp/"+lines[0]) || lines[1] != "x" || lines[2] != "secret" || string(l.end.Result) != "result" {
				t.Fatalf("as %q it printed %q and %q, and left %q, %q", user, lines, l.text("stderr"), l.end.Result, l.end.ResultErr)
			}
			left, err := filepath.Glob(filepath.Dir(lines[3]) + "*")
			if len(left) > 0 || err != nil {
				t.Errorf("left is %v, %v", left, err)
			}
		}
		spec := shell(`ls -A /tmp /var/tmp`)
		spec.PrivateTmp = true
		if l := follow(t, start(t, o, spec), 0); l.text("stdout") != "/tmp:\n\n/var/tmp:\n" {
			t.Errorf("without secrets it printed %q and %q", l.text("stdout"), l.text("stderr"))
		}
	})
}
