package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/internal/yamlfile"
)

var update = flag.Bool("update", false, "write testdata/schema anew")

// folder is a directory of its own with files that nobody else can write.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// examples are the commands of testdata/procedures.
func examples(t testing.TB) map[string]*Command {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir("testdata/procedures")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("testdata/procedures", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	list, err := Load(folder(t, files), hasAll, wire.MaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Command{}
	for _, c := range list {
		all[c.Doc.Name] = c
	}
	return all
}

func TestExamplesAreDescribed(t *testing.T) {
	all := examples(t)
	if len(all) != 6 {
		t.Errorf("there are %d procedures, want 6", len(all))
	}
	for name, c := range all {
		got, err := json.MarshalIndent(c.Doc, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		path := filepath.Join("testdata/schema", name+".json")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // a golden file
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is described as\n%swant\n%s%v", name, got, want, err)
		}
	}
}

func TestLimitsOfExamples(t *testing.T) {
	all := examples(t)
	for name, want := range map[string]int{"backup.folder": 1, "apt.install": 1, "system.reboot": 1, "sync": 0} {
		if got := all[name].Concurrency; got != want {
			t.Errorf("%s runs %d times at a time, want %d", name, got, want)
		}
	}
	if !all["system.reboot"].EndsReboot || !all["apt.install"].DryRun || all["sync"].DryRun {
		t.Error("a reboot or a dry run is not known")
	}
}

func TestLoadOfNothing(t *testing.T) {
	list, err := Load(folder(t, map[string]string{"README": "x", ".hidden.yaml": "x: [", "none.yaml": "# nothing\n"}), hasAll, wire.MaxMessage)
	if err != nil || len(list) > 0 {
		t.Errorf("loaded %v, %v", list, err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none"), hasAll, wire.MaxMessage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no directory the error is %v", err)
	}
}

func TestLoadNamesBothFilesOfADuplicate(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "# one\nx:\n  command: [a]\n", "b.yml": "y: {command: [a]}\nx: {command: [b]}\n"})
	list, err := Load(dir, hasAll, wire.MaxMessage)
	want := filepath.Join(dir, "b.yml") + ":2: x: is already in " + filepath.Join(dir, "a.yaml")
	if list != nil || !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, %v; want %s", list, err, want)
	}
}

func TestLoadJoinsTheErrorsOfAllFiles(t *testing.T) {
	_, err := Load(folder(t, map[string]string{"a.yaml": "x: {command: [a], odd: 1}\n", "b.yml": "y: {comand: [a]}\n", "c.yaml": "z: {command: []}\n"}), hasAll, wire.MaxMessage)
	for _, want := range []string{"a.yaml:1: x.odd: is unknown", "b.yml:1: y.comand: is unknown", "c.yaml:1: z.command: is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s:\n%v", want, err)
		}
	}
}

func TestLoadRefusesWhatOthersCanWrite(t *testing.T) {
	for name, mode := range map[string]fs.FileMode{"a.yaml": 0o620, ".": 0o702} {
		dir := folder(t, map[string]string{"a.yaml": "x: {command: [a]}\n"})
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir, hasAll, wire.MaxMessage)
		var wrong *yamlfile.Error
		if !errors.As(err, &wrong) || wrong.File != filepath.Join(dir, name) || !strings.Contains(wrong.Message, "can be written by others") {
			t.Errorf("%s with mode %v: %v", name, mode, err)
		}
	}
}

func TestLoadRefusesAnotherUsersFile(t *testing.T) {
	needs.Root(t)
	dir := folder(t, map[string]string{"a.yaml": "x: {command: [a]}\n"})
	if err := os.Chown(filepath.Join(dir, "a.yaml"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "is owned by user 65534") {
		t.Errorf("error is %v", err)
	}
}

func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	dir := folder(t, nil)
	if err := os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("of a directory the error is %v", err)
	}
	dir = folder(t, map[string]string{"a.yaml": "#" + strings.Repeat("x", maxFile)})
	if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("of a large file the error is %v", err)
	}
}

// TestWhatIsWrongIsNamed: each error names the line and the field. The texts are lines
// of a procedure x, which begins in line 1.
func TestWhatIsWrongIsNamed(t *testing.T) {
	run := "command: [a]"
	with := func(param, command string) string {
		return "params:\n  p: " + param + "\ncommand: " + command
	}
	for _, test := range []struct{ text, want string }{
		{"summary: x", `:1: x.command: is missing`},
		{"command: a", `:2: x.command: must be a list, is a`},
		{"command: [[a]]", `:2: x.command[0]: must be the name of a program`},
		{"command: ['']", `:2: x.command[0]: must be the name of a program`},
		{"command: [a, ~]", `:2: x.command[1]: must be a text`},
		{"command: [~]", `:2: x.command[0]: must be a text`},
		{"command: [a, []]", `:2: x.command[1]: must not be empty`},
		{"command: [a, [b, [c]]]", `:2: x.command[1]: must be a text, or a list`},
		{"command: [a, {b: c}]", `:2: x.command[1]: must be a text`},
		{"command: [a, !!binary aGk=]", `:2: x.command[1]: must be a text, not !!binary`},
		{`command: [a, "b\0"]`, `:2: x.command[1]: must not contain NUL`},
		{run + "\ndry_run: []", `:3: x.dry_run: must list a program`},
		{"command:\n- a\n- '{{.q}}'", `:4: x.command[1]: {{.q}} is not a param; there are no params`},
		{with("{}", "[a, '{{.p}}', [b, '{{.q}}']]"), `:4: x.command[2][1]: {{.q}} is not a param; available: p`},
		{with("{}", "['{{.p}}']"), `:4: x.command[0]: must not have a placeholder`},
		{with("{}", "[a, '{{.p}']"), `:4: x.command[1]: has a {{ without }}; there is {{.name}}`},
		{with("{}", "[a, '{{p}}']"), `:4: x.command[1]: {{p}} is not a placeholder; there is {{.name}}`},
		{with("{}", "[a, '{{.p | shell}}']"), `:4: x.command[1]: {{.p | shell}} is not a placeholder`},
		{with("{}", "[a, '{{file .p...}}']"), `:4: x.command[1]: {{file .p...}} is not a placeholder`},
		{with("{}", "[a, '{{.p...}}']"), `:4: x.command[1]: {{.p...}} is for a list; p is of type string`},
		{with("{type: int}", "[a, '{{file .p}}']"), `:4: x.command[1]: {{file .p}} is for a secret, a string or json; p is of type int`},
		{with("{type: list}", "[a, '{{.p}}']"), `:4: x.command[1]: p is a list, which does not fit in one element; {{.p...}} repeats the element for each`},
		{with("{type: list}", "[a, '{{.p...}}{{.p...}}']"), `:4: x.command[1]: must not have a second list`},
		{with("{type: list}", "[a]\nstdin: '{{.p}}'"), `:5: x.stdin: cannot be a list; give p the type json`},
		{with("{type: list}", "[a]\nenv: {A: '{{.p...}}'}"), `:5: x.env.A: cannot be a list; use the type json`},
		{with("{type: secret}", "[a, '{{.p}}']"), `:4: x.command[1]: must not hold a secret, which others could see: use stdin: "{{.p}}", or {{file .p}}`},
		{with("{type: secret}", "[a]\ndry_run: [a, '-p{{.p}}']"), `:5: x.dry_run[1]: must not hold a secret`},
		{with("{type: secret}", "[a]\nenv: {A: '{{.p}}'}"), `:5: x.env.A: must not hold a secret`},
		{with("{type: secret, default: x}", "[a, '{{file .p}}']"), `:3: x.params.p.default: must not be given: everybody could read the secret`},
		{with("{}", "[a]"), `:3: x.params.p: has no placeholder`},
		{with("{type: text}", "[a, '{{.p}}']"), `:3: x.params.p.type: must be one of string, int`},
		{with("{typ: text}", "[a, '{{.p}}']"), `:3: x.params.p.typ: is unknown`},
		{with("{pattern: '['}", "[a, '{{.p}}']"), `:3: x.params.p.pattern: error parsing regexp`},
		{with("{type: int, pattern: x}", "[a, '{{.p}}']"), `:3: x.params.p.pattern: is for string, secret, not for int`},
		{with("{min: 1}", "[a, '{{.p}}']"), `:3: x.params.p.min: is for int, number, duration, not for string`},
		{with("{type: int, min: 5, max: 1}", "[a, '{{.p}}']"), `:3: x.params.p.max: must not be less than 5`},
		{with("{type: int, min: x}", "[a, '{{.p}}']"), `:3: x.params.p.min: must be an integer, is "x"`},
		{with("{type: int, max: 9223372036854775807}", "[a, '{{.p}}']"), `:3: x.params.p.max: must be at most 2^53`},
		{with("{type: number, max: .inf}", "[a, '{{.p}}']"), `:3: x.params.p.max: must be at most`},
		{with("{type: int, min: -1}", "[a, '{{.p}}']"), `:3: x.params.p.min: is negative, and begins an element of the command`},
		{with("{type: duration, max: x}", "[a, '{{.p}}']"), `:3: x.params.p.max: must be a duration`},
		{with("{min_length: 3, max_length: 2}", "[a, '{{.p}}']"), `:3: x.params.p.min_length: must not be more than max_length`},
		{with("{min_length: -3}", "[a, '{{.p}}']"), `:3: x.params.p.min_length: must not be negative`},
		{with("{max_length: 131072}", "[a, '{{.p}}']"), `:3: x.params.p.max_length: must be at most 131071`},
		{with("{type: enum}", "[a, '{{.p}}']"), `:3: x.params.p.enum: is missing`},
		{with("{enum: [a, a]}", "[a, '{{.p}}']"), `:3: x.params.p.enum[1]: is a duplicate`},
		{with("{enum: [a, [b]]}", "[a, '{{.p}}']"), `:3: x.params.p.enum[1]: must be a text`},
		{with("{enum: [a, ~]}", "[a, '{{.p}}']"), `:3: x.params.p.enum[1]: must be a text`},
		{with("{type: int, enum: [1]}", "[a, '{{.p}}']"), `:3: x.params.p.enum: is for enum, string, not for int`},
		{with("{type: int, default: x}", "[a, '{{.p}}']"), `:3: x.params.p.default: must be an integer, is "x"`},
		{with("{type: int, max: 3, default: 4}", "[a, '{{.p}}']"), `:3: x.params.p.default: does not fit: must be at most 3, is 4`},
		{with("{enum: [a], default: b}", "[a, '{{.p}}']"), `:3: x.params.p.default: does not fit: must be one of a, is "b"`},
		{with("{default: -b}", "[a, '{{.p}}']"), `:3: x.params.p.default: does not fit: must match`},
		{with("{type: list, default: [[a]]}", "[a, '{{.p...}}']"), `:3: x.params.p.default: element 0 must be a text`},
		{with("{type: path, default: a/b}", "[a, '{{.p}}']"), `:3: x.params.p.default: does not fit: must match`},
		{with("{required: true, default: a}", "[a, '{{.p}}']"), `:3: x.params.p.default: is never used`},
		{with("{type: path, under: srv}", "[a, '{{.p}}']"), `:3: x.params.p.under: must be an absolute path`},
		{with("{under: /srv}", "[a, '{{.p}}']"), `:3: x.params.p.under: is for path, not for string`},
		{with("{type: bool, dash: true}", "[a, '{{.p}}']"), `:3: x.params.p.dash: is for string`},
		{with("{type: list, items: {type: list}}", "[a, '{{.p...}}']"), `:3: x.params.p.items.type: must not be list`},
		{with("{type: list, items: {required: true}}", "[a, '{{.p...}}']"), `:3: x.params.p.items: cannot have required or default`},
		{with("{type: list, items: {type: int, max: x}}", "[a, '{{.p...}}']"), `:3: x.params.p.items.max: must be an integer`},
		{"params: {1p: {}}\n" + run, `:2: x.params.1p: must be a name of at most 64 letters`},
		{"params:\n  <<: {p: {}}\n" + run, `:3: x.params.<<: must be a name of at most 64 letters`},
		{"params: [p]\n" + run, `:2: x.params: must be a map`},
		{with("{}", "[sh, -c, 'ls {{.p}}']"), `:4: x.command[2]: must not have a placeholder: sh reads it as code`},
		{with("{}", "[/usr/bin/env, A=1, /usr/bin/python3.11, -Ic, 'print({{.p}})']"), `:4: x.command[4]: must not have a placeholder: python reads it as code`},
		{with("{}", "[sudo, perl, -e, '{{.p}}']"), `:4: x.command[3]: must not have a placeholder: perl reads it as code`},
		{run + "\nenv: {PATH: '{{.p}}'}\nparams: {p: {}}", `:3: x.env.PATH: must not have a placeholder: PATH decides which code runs`},
		{run + "\nenv: {LD_PRELOAD: 'x{{.p}}'}\nparams: {p: {}}", `:3: x.env.LD_PRELOAD: must not have a placeholder`},
		{run + "\nenv: {HARP_JOB: x}", `:3: x.env.HARP_JOB: must not begin with HARP_`},
		{run + "\nenv: {'A=B': x}", `:3: x.env.A=B: must be the name of a variable`},
		{run + "\npass_env: [A, 'B C']", `:3: x.pass_env[1]: must be the name of a variable`},
		{run + "\ncwd: '{{.p}}'\nparams: {p: {}}", `:3: x.cwd: must not have a placeholder`},
		{run + "\nuser: '{{.p}}'\nparams: {p: {}}", `:3: x.user: must not have a placeholder`},
		{run + "\numask: 9", `:3: x.umask: must be an octal number such as 022, is "9"`},
		{run + "\nnice: 20", `:3: x.nice: must be from -20 (first) to 19, is 20`},
		{run + "\nnice: low", `:3: x.nice: must be`},
		{run + "\nmemory_max: 15MiB", `:3: x.memory_max: must be at least 16MiB`},
		{run + "\nmemory_max: much", `:3: x.memory_max: must be`},
		{run + "\ncpu_max: 0.001", `:3: x.cpu_max: must be a number of CPUs such as 0.5 or 2, at least 0.01`},
		{run + "\ncpu_max: .nan", `:3: x.cpu_max: must be a number of CPUs`},
		{run + "\npids_max: 15", `:3: x.pids_max: must be at least 16`},
		{run + "\npids_max: 16\nleave_running: true", `:3: x.pids_max: cannot be combined with leave_running`},
		{run + "\nprivate_tmp: true\ncwd: /tmp/x", `:4: x.cwd: must not be in /tmp or /var/tmp`},
		{run + "\nprivate_tmp: true\nresult: {from: file, path: /tmp/../var/tmp/x}", `:4: x.result.path: must not be in /tmp or /var/tmp`},
		{run + "\nprivate_tmp: true\ncwd: /tmp\nresult: {from: file, path: x}", `:5: x.result.path: must not be in /tmp or /var/tmp`},
		{"private_tmp: true\ncommand: [/tmp/x]", `:3: x.command: /tmp/x must not be in /tmp`},
		{run + "\nrlimits: {nofiles: 5}", `:3: x.rlimits: nofiles is unknown; available: as, core`},
		{run + "\nrlimits: {nofile: many}", `:3: x.rlimits.nofile: must be a number such as 1024`},
		{run + "\nrlimits: {nofile: {soft: 2, hard: 1}}", `:3: x.rlimits.nofile: soft must not be more than hard`},
		{run + "\nrlimits: {nofile: {soft: 2}}", `:3: x.rlimits.nofile: must be a number, or have soft and hard`},
		{run + "\nrlimits: {nofile: }", `:3: x.rlimits: nofile must be a number, or`},
		{run + "\ngrace: none", `:3: x.grace: must be a duration`},
		{run + "\nsilence_timeout: 5", `:3: x.silence_timeout: must be a duration such as 5s or 1h30m, is "5"`},
		{run + "\nconcurrency: 0", `:3: x.concurrency: must be at least 1`},
		{run + "\nconcurrency: 2\nexclusive: true", `:3: x.concurrency: is 1: use exclusive`},
		{run + "\nends: reboot\nread_only: true", `:4: x.read_only: cannot be combined with ends: reboot`},
		{run + "\nread_only: perhaps", `:3: x.read_only: must be true or false`},
		{run + "\nends: sleep", `:3: x.ends: must be reboot or left out, is sleep`},
		{run + "\nresult: {from: stderr}", `:3: x.result.from: must be one of exit-code, stdout, stdout-last-json, file, is stderr`},
		{run + "\nresult: {path: x}", `:3: x.result.path: is only for from: file`},
		{run + "\nresult: {from: stdout, max: 3GiB}", `:3: x.result.max: must be at most 2097088`},
		{run + "\nsuccess: [0, 256]", `:3: x.success[1]: must be an exit code from 0 to 255`},
		{run + "\nsuccess: []", `:3: x.success: must list an exit code, or be left out, which means 0`},
		{run + "\nrecords: words", `:3: x.records: must be one of lines, json, raw, is words`},
		{run + "\nroles: ['a b']", `:3: x.roles[0]: must be a word`},
		{run + "\n" + run, `:3: x.command: mapping key "command" already defined at line 2`},
	} {
		_, list, err := parse("f.yaml", []byte("x:\n  "+strings.ReplaceAll(test.text, "\n", "\n  ")+"\n"))
		if list != nil || !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "f.yaml"+test.want) {
			t.Errorf("%s\ngives %v\nwant  f.yaml%s", test.text, err, test.want)
		}
	}
}

func TestWhatIsWrongWithAFile(t *testing.T) {
	for text, want := range map[string]string{
		"x:\n":                      "f.yaml:1: x: must be a map that describes the procedure",
		"x y: {command: [a]}\n":     "f.yaml:1: x y: the name must be 1 to 128 bytes",
		"- x\n":                     "f.yaml:1: must be a map",
		"x: [\n":                    "f.yaml:2: ",
		"x: {command: [a]}\n---\n5": "f.yaml: must be one document",
	} {
		if _, list, err := parse("f.yaml", []byte(text)); list != nil || !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %s", text, err, want)
		}
	}
}

// FuzzLoad: no text of a file does more than to be refused, and what is taken is a
// procedure whose calls can be checked and prepared.
func FuzzLoad(f *testing.F) {
	for _, glob := range []string{"testdata/procedures/*"} {
		paths, err := filepath.Glob(glob)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("a: &a {command: [x, '{{.p}}'], params: {p: {default: *a}}}\nb: *a\n"))
	f.Add([]byte("a:\n  params: {p: {type: list, items: }, q: }\n  command: [x, '{{.p...}}{{\"{{\"}}']\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, list, err := parse("/f.yaml", text)
		if err != nil {
			if !errors.Is(err, harp.ErrInvalid) {
				t.Errorf("the error is no ErrInvalid: %v", err)
			}
			return
		}
		for _, c := range list {
			args, err := schema.Compile(c.Doc)
			if err != nil {
				t.Fatalf("the schema of %s: %v", c.Doc.Name, err)
			}
			bound, err := args.Bind(nil)
			if err != nil {
				continue
			}
			spec, err := c.Prepare(Call{Args: bound})
			if err == nil && slices.ContainsFunc(spec.Command.Argv, func(a string) bool { return len(a) > maxElement+200 }) {
				t.Error("an element is too long")
			}
		}
	})
}

// TestLimitsThatCannotBeKeptAreRefused: a limit that this machine cannot keep is named when
// the file is read, and the one that it can is what the command gets.
func TestLimitsThatCannotBeKeptAreRefused(t *testing.T) {
	const text = "x:\n  command: [/bin/true]\n  memory_max: 512MiB\n  cpu_max: 1.5\n  pids_max: 100\n"
	dir := folder(t, map[string]string{"f.yaml": text})
	cannot := errors.New("not enabled")
	_, err := Load(dir, func(controller string) error {
		if controller == "memory" {
			return nil
		}
		return cannot
	}, wire.MaxMessage)
	for _, want := range []string{"f.yaml:4: x.cpu_max: is not available here: not enabled", "f.yaml:5: x.pids_max: is not available here: not enabled"} {
		if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "memory_max") {
		t.Errorf("what can be kept is refused: %v", err)
	}
	list, err := Load(dir, hasAll, wire.MaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := list[0].Prepare(Call{})
	if want := (proc.Limits{Memory: 512 << 20, CPU: 150_000, PIDs: 100}); err != nil || spec.Command.Limits != want {
		t.Errorf("got %+v, %v, want %+v", spec.Command.Limits, err, want)
	}
}
