package command

import (
	"bytes"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/schema"
)

// one makes the one command of a text of YAML.
func one(t testing.TB, text string) *Command {
	t.Helper()
	_, list, err := parse("/etc/harp/f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// prepare binds and prepares as an agent does.
func prepare(t testing.TB, c *Command, args any, dry bool) (supervisor.Spec, error) {
	t.Helper()
	v, err := harp.NewValue(args)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile(c.Doc)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := compiled.Bind(v)
	if err != nil {
		return supervisor.Spec{}, err
	}
	return c.Prepare(Call{Job: "j", Attempt: 2, Host: "web01", Args: bound, DryRun: dry, SilenceTimeout: 1, MaxExecTime: 2, MaxRecord: 3, MaxSpool: 4})
}

func TestPrepareOfAnExample(t *testing.T) {
	t.Setenv("http_proxy", "http://proxy")
	c := examples(t)["apt.install"]
	spec, err := prepare(t, c, harp.Args{"packages": []string{"curl", "git"}, "options": []string{"--reinstall"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	root, err := user.Lookup("root")
	if err != nil {
		needs.Missing(t, err)
	}
	want := supervisor.Spec{
		Key: supervisor.Key{Job: "j", Attempt: 2}, Procedure: "apt.install",
		Command: proc.Spec{
			Argv: []string{"apt-get", "install", "--yes", "--quiet", "--reinstall", "curl", "git"},
			Env: []string{
				"DEBIAN_FRONTEND=noninteractive", "HARP_ATTEMPT=2", "HARP_HOST=web01", "HARP_JOB=j", "HARP_PROCEDURE=apt.install",
				"HOME=" + root.HomeDir, "LANG=C.UTF-8", "LOGNAME=root", "PATH=" + defaultPath, "SHELL=/bin/sh", "USER=root", "http_proxy=http://proxy",
			},
			User: "root",
		},
		SilenceTimeout: 1, MaxExecTime: 2, MaxRecord: 3, MaxSpool: 4, Grace: 10 * time.Second, Records: supervisor.SplitLines,
		Result: supervisor.Result{From: "exit-code", Max: defaultResult},
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("got  %+v\nwant %+v", spec, want)
	}
	dry, err := prepare(t, c, harp.Args{"packages": []string{"curl"}}, true)
	if want := []string{"apt-get", "install", "--simulate", "curl"}; err != nil || !slices.Equal(dry.Command.Argv, want) {
		t.Errorf("a dry run is of %q, %v", dry.Command.Argv, err)
	}
	if _, err := prepare(t, examples(t)["system.reboot"], nil, true); fieldOf(err) != "dry_run" {
		t.Errorf("a dry run of what has none: %v", err)
	}
}

func fieldOf(err error) string {
	var wrong *harp.FieldError
	if errors.As(err, &wrong) {
		return wrong.Field
	}
	return ""
}

func TestPrepareOfAllFields(t *testing.T) {
	c := one(t, `
x:
  params: {a: {type: secret}}
  command: [./run]
  stdin: "{{.a}}"
  cwd: work
  user: "12345678"
  group: adm
  groups: [a, b]
  umask: 0o27
  rlimits: {nofile: 5, as: {soft: 1KiB, hard: unlimited}}
  grace: 1m
  success: [0, 2]
  records: json
  leave_running: true
  env: {B: b, LANG: C}
  result: {from: file, path: out, max: 1KiB}
`)
	spec, err := prepare(t, c, harp.Args{"a": "s\x00é"}, false)
	if err != nil {
		t.Fatal(err)
	}
	want := supervisor.Spec{
		Key: supervisor.Key{Job: "j", Attempt: 2}, Procedure: "x", Stdin: []byte("s\x00é"),
		Command: proc.Spec{
			Argv: []string{"/etc/harp/run"}, Dir: "/etc/harp/work", User: "12345678", Group: "adm", Groups: []string{"a", "b"}, Umask: new(0o27),
			Env: []string{
				"B=b", "HARP_ATTEMPT=2", "HARP_HOST=web01", "HARP_JOB=j", "HARP_PROCEDURE=x", "HOME=/", "LANG=C", "LOGNAME=12345678",
				"PATH=" + defaultPath, "SHELL=/bin/sh", "USER=12345678",
			},
			Rlimits: []proc.Rlimit{{Name: "as", Soft: 1024, Hard: 1<<64 - 1}, {Name: "nofile", Soft: 5, Hard: 5}},
		},
		SilenceTimeout: 1, MaxExecTime: 2, MaxRecord: 3, MaxSpool: 4, Grace: time.Minute, Records: supervisor.SplitJSON,
		Result: supervisor.Result{From: "file", Path: "out", Max: 1024}, Success: []int{0, 2}, Leave: true,
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("got  %+v\nwant %+v", spec, want)
	}
}

// TestTheEnvironmentIsClean: nothing of the agent's own but what the file lets through.
func TestTheEnvironmentIsClean(t *testing.T) {
	t.Setenv("LD_PRELOAD", "/evil.so")
	t.Setenv("TOKEN", "secret")
	t.Setenv("PATH", "/evil")
	spec, err := prepare(t, one(t, "x: {command: [a], pass_env: [LANGUAGE_NONE]}"), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(spec.Command.Env, "\n")
	if strings.Contains(all, "evil") || strings.Contains(all, "secret") || strings.Contains(all, "LANGUAGE_NONE") {
		t.Errorf("the environment is\n%s", all)
	}
}

// TestFill: how the placeholders of elements are filled.
func TestFill(t *testing.T) {
	const params = `
x:
  params:
    s: {dash: true}
    o: {dash: true}
    n: {type: number, dash: true}
    i: {type: int, dash: true}
    b: {type: bool}
    d: {type: duration, dash: true}
    j: {type: json, dash: true}
    l: {type: list, dash: true}
    li: {type: list, items: {type: int, dash: true}}
    e: {enum: [-a, b]}
    def: {default: [x], type: list}
    f: {type: secret}
  stdin: "{{.s}}{{.o}}{{.n}}{{.i}}{{.b}}{{.d}}{{.j}}{{.e}}"
  dry_run: [x, "{{.def...}}", "{{.l...}}", "{{.li...}}", "{{file .f}}"]
  command: [x, `
	for _, test := range []struct {
		command string
		args    harp.Args
		want    []string
	}{
		{`"{{.s}}"`, harp.Args{"s": "-x y"}, []string{"-x y"}},
		{`"{{ .s }}"`, harp.Args{"s": ""}, []string{""}},
		{`"a{{.s}}b{{.o}}c"`, harp.Args{"s": "{{.o}}", "o": "{{.s}}"}, []string{"a{{.o}}b{{.s}}c"}},
		{`"a{{.s}}b{{.o}}c", z`, harp.Args{"s": "1"}, []string{"z"}},
		{`[-o, "{{.o}}"], z`, harp.Args{}, []string{"z"}},
		{`[-o, "{{.o}}"], z`, harp.Args{"o": "1"}, []string{"-o", "1", "z"}},
		{`'{{"{{"}}.State}}'`, harp.Args{}, []string{"{{.State}}"}},
		{`'{{"{{"}}{{.s}}}}'`, harp.Args{"s": "s"}, []string{"{{s}}"}},
		{`"{{.l...}}", z`, harp.Args{"l": []string{}}, []string{"z"}},
		{`"{{.l...}}", z`, harp.Args{"l": []string{"a b", ""}}, []string{"a b", "", "z"}},
		{`"--l={{.l...}}:{{.s}}"`, harp.Args{"l": []string{"a", "b"}, "s": "s"}, []string{"--l=a:s", "--l=b:s"}},
		{`[-l, "{{.l...}}"], z`, harp.Args{"l": []string{"a", "b"}}, []string{"-l", "a", "-l", "b", "z"}},
		{`"{{.li...}}"`, harp.Args{"li": []int{1, -2}}, []string{"1", "-2"}},
		{`"{{.def...}}"`, harp.Args{}, []string{"x"}},
		{`"{{.n}}"`, harp.Args{"n": -1.50}, []string{"-1.5"}},
		{`"{{.n}}"`, harp.Args{"n": 1e21}, []string{"1000000000000000000000"}},
		{`"{{.i}}"`, harp.Args{"i": uint64(1<<64 - 1)}, []string{"18446744073709551615"}},
		{`"{{.i}}"`, harp.Args{"i": 5.0}, []string{"5"}},
		{`"--b={{.b}}"`, harp.Args{"b": true}, []string{"--b=true"}},
		{`"{{.d}}"`, harp.Args{"d": 90 * time.Second}, []string{"1m30s"}},
		{`"{{.j}}"`, harp.Args{"j": map[string]any{"b": []any{1, "<\n"}, "a": nil}}, []string{`{"a":null,"b":[1,"<\n"]}`}},
		{`"{{.j}}"`, harp.Args{"j": nil}, []string{"null"}},
		{`"{{.e}}"`, harp.Args{"e": "-a"}, []string{"-a"}},
		{`"-p{{file .f}}"`, harp.Args{"f": "pw"}, []string{"-p" + supervisor.SecretPath("f")}},
		{`"-p{{file .f}}"`, harp.Args{}, nil},
	} {
		spec, err := prepare(t, one(t, params+test.command+"]\n"), test.args, false)
		if err != nil {
			t.Errorf("%s with %v: %v", test.command, test.args, err)
		} else if got := spec.Command.Argv[1:]; !slices.Equal(got, test.want) {
			t.Errorf("%s with %v is %q, want %q", test.command, test.args, got, test.want)
		}
	}
}

func TestSecretsAreInFilesOrStdin(t *testing.T) {
	c := one(t, `
x:
  params: {pw: {type: secret, pattern: ^s, required: true}, text: {}, other: {type: secret}}
  command: [x, "{{file .pw}}", "-f{{file .pw}}", "{{file .text}}"]
  env: {FILE: "{{file .pw}}"}
  stdin: "{{.other}}"
`)
	spec, err := prepare(t, c, harp.Args{"pw": "s3cret", "text": strings.Repeat("x", 1<<18)}, false)
	if err != nil {
		t.Fatal(err)
	}
	path := supervisor.SecretPath("pw")
	if want := []string{"x", path, "-f" + path, supervisor.SecretPath("text")}; !slices.Equal(spec.Command.Argv, want) {
		t.Errorf("the command is %q", spec.Command.Argv)
	}
	if !slices.Contains(spec.Command.Env, "FILE="+path) || len(spec.Secrets) != 2 || string(spec.Secrets[0].Content) != "s3cret" || len(spec.Secrets[1].Content) != 1<<18 {
		t.Errorf("the environment is %q, the files are %d", spec.Command.Env, len(spec.Secrets))
	}
	_, err = prepare(t, c, harp.Args{"pw": "s", "other": "a" + path}, false)
	if fieldOf(err) != "args.other" {
		t.Errorf("a secret can name the file of another: %v", err)
	}
	_, err = prepare(t, c, harp.Args{"pw": "wrong-s3cret"}, false)
	if fieldOf(err) != "args.pw" || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error of a secret is %v", err)
	}
}

// hostile are arguments that must arrive as they are.
var hostile = []string{
	"; rm -rf x", "$(id)", "`id`", "a\nb", "a b", " ", "", "*", "~", "'", `"`, `\`, "|", "&", "a\r\nb", "é\u202e", "{{.p}}", "{{file .p}}",
	"%s%n", "\x1b[31m", "$IFS", "LD_PRELOAD=/x", strings.Repeat("x", 100<<10), strings.Repeat("x", maxElement),
}

func TestHostileArgumentsArriveByteEqual(t *testing.T) {
	alone := one(t, "x: {params: {p: {}}, command: [x, '{{.p}}', z]}")
	inside := one(t, "x: {params: {p: {}}, command: [x, '--p={{.p}}.'], env: {P: '{{.p}}'}}")
	list := one(t, "x: {params: {p: {type: list}}, command: [x, '{{.p...}}', z]}")
	for _, text := range hostile {
		spec, err := prepare(t, alone, harp.Args{"p": text}, false)
		if err != nil || !slices.Equal(spec.Command.Argv, []string{"x", text, "z"}) {
			t.Errorf("%.40q becomes %.60q, %v", text, spec.Command.Argv, err)
		}
		if spec, err = prepare(t, list, harp.Args{"p": []string{text, text}}, false); err != nil || !slices.Equal(spec.Command.Argv, []string{"x", text, text, "z"}) {
			t.Errorf("%.40q in a list becomes %.60q, %v", text, spec.Command.Argv, err)
		}
		spec, err = prepare(t, inside, harp.Args{"p": text}, false)
		switch {
		case len(text) == maxElement:
			if fieldOf(err) != "args.p" || !strings.Contains(err.Error(), "131071") {
				t.Errorf("an element that is too long: %v", err)
			}
		case err != nil || !slices.Equal(spec.Command.Argv, []string{"x", "--p=" + text + "."}) || !slices.Contains(spec.Command.Env, "P="+text):
			t.Errorf("%.40q inside becomes %.60q, %v", text, spec.Command.Argv, err)
		}
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/at/all", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	under := "{type: path, under: " + dir + "}"
	for _, test := range []struct {
		param, element string
		arg            any
		field, says    string
	}{
		{"{}", "{{.p}}", "a\x00b", "args.p", "must match"},
		{"{pattern: .}", "{{.p}}", "a\x00b", "args.p", `must match ^(?:[^-\x00][^\x00]*)?$`},
		{"{}", "{{.p}}", "-x", "args.p", "must match"},
		{"{pattern: .}", "{{.p}}", "-x", "args.p", "must match"},
		{"{}", "{{.p}}", strings.Repeat("x", maxElement+1), "args.p", "at most 131071 characters"},
		{"{}", "{{.p}}", strings.Repeat("é", maxElement/2+1), "args.p", "at most 131071 bytes"},
		{"{dash: true}", "{{.p}}", "-\x00", "args.p", "must match"},
		{"{type: list}", "{{.p...}}", []string{"a", "-x"}, "args.p[1]", "must match"},
		{"{type: list}", "{{.p...}}", []string{strings.Repeat("é", maxElement/2+1)}, "args.p[0]", "at most 131071 bytes"},
		{"{type: int}", "{{.p}}", -1, "args.p", "must be at least 0"},
		{"{type: number}", "{{.p}}", -0.5, "args.p", "must be at least 0"},
		{"{type: duration}", "{{.p}}", -time.Second, "args.p", "must be at least 0"},
		{"{type: json}", "{{.p}}", -5, "args.p", "must not begin with -"},
		{"{type: json}", "{{.p}}", strings.Repeat("x", maxElement), "args.p", "at most 131071 bytes"},
		{"{type: path}", "{{.p}}", "a/b", "args.p", "must match"},
		{"{type: path}", "{{.p}}", "", "args.p", "must match"},
		{"{type: path}", "{{.p}}", "/a/../b", "args.p", "must match"},
		{"{type: path}", "{{.p}}", "/..", "args.p", "must match"},
		{"{type: path}", "{{.p}}", "/a\x00", "args.p", "must match"},
		{"{type: path, under: /srv}", "{{.p}}", "/srvx", "args.p", "must match"},
		{"{type: path, under: /srv}", "{{.p}}", "/srv/../etc", "args.p", "must match"},
		{"{type: path, under: /none}", "{{.p}}", "/none/x", "args.p", "must be under /none, which cannot be read"},
		{under, "{{.p}}", dir + "/out", "args.p", "must be under " + dir + ", is /etc"},
		{under, "{{.p}}", dir + "/out/new/file", "args.p", "must be under " + dir + ", is /etc/new/file"},
		{under, "{{.p}}", dir + "/dangling", "args.p", "cannot be followed"},
		{under, "{{.p}}", dir + "/dangling/x", "args.p", "cannot be followed"},
		{"{type: list, items: " + under + "}", "{{.p...}}", []string{dir, dir + "/out"}, "args.p[1]", "must be under"},
		{"{enum: [a]}", "{{.p}}", "b", "args.p", "must be one of a"},
	} {
		c := one(t, "x: {params: {p: "+test.param+"}, command: [x, '"+test.element+"']}")
		spec, err := prepare(t, c, harp.Args{"p": test.arg}, false)
		if fieldOf(err) != test.field || !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %.40q is %.60q, %v; want %s: %s", test.param, test.arg, spec.Command.Argv, err, test.field, test.says)
		}
	}
	c := one(t, "x: {params: {p: "+under+"}, command: [x, '{{.p}}']}")
	for _, good := range []string{dir, dir + "/", dir + "/a/b..c/...", dir + "/./a"} {
		if spec, err := prepare(t, c, harp.Args{"p": good}, false); err != nil || spec.Command.Argv[1] != good {
			t.Errorf("%s is refused: %v", good, err)
		}
	}
	longest := strings.Repeat("x", maxElement)
	for _, kind := range []string{"string", "list", "json"} {
		arg, element, words := any(longest), "{{.p}}", longest
		switch kind {
		case "list":
			arg, element = []string{longest}, "{{.p...}}"
		case "json":
			arg, words = longest[len(`""`):], `"`+longest[len(`""`):]+`"`
		}
		c := one(t, "x: {params: {p: {type: "+kind+"}}, command: [x, '"+element+"']}")
		if spec, err := prepare(t, c, harp.Args{"p": arg}, false); err != nil || spec.Command.Argv[1] != words {
			t.Errorf("the longest %s that Linux takes is refused: %v", kind, err)
		}
	}
}

// TestAnEmptyArgumentHidesNoDash: what an element begins with is known only when it is
// filled.
func TestAnEmptyArgumentHidesNoDash(t *testing.T) {
	c := one(t, "x: {params: {a: {dash: true}, b: {}}, command: [x, '{{.a}}{{.b}}']}")
	if _, err := prepare(t, c, harp.Args{"a": "", "b": "-x"}, false); fieldOf(err) != "args.b" {
		t.Errorf("error is %v", err)
	}
	if spec, err := prepare(t, c, harp.Args{"a": "-", "b": "x"}, false); err != nil || spec.Command.Argv[1] != "-x" {
		t.Errorf("%q, %v", spec.Command.Argv, err)
	}
}

// FuzzFill: whatever the arguments are, there are as many elements, each the argument
// byte for byte, or the call is refused.
func FuzzFill(f *testing.F) {
	for i, text := range hostile {
		f.Add(text, hostile[len(hostile)-1-i])
	}
	f.Add("-x", "\x00")
	c := one(f, `
x:
  params: {a: {}, b: {dash: true}, l: {type: list}, s: {type: secret}}
  command: [x, "{{.a}}", "{{.a}}{{.b}}", "-{{.b}}-", [-l, "{{.l...}}"], "{{file .s}}"]
  stdin: "{{.a}}\n{{.s}}"
  env: {A: "{{.a}}"}
`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return // no value is such a text
		}
		spec, err := prepare(t, c, harp.Args{"a": a, "b": b, "l": []string{a, b}, "s": b}, false)
		if err != nil {
			if fieldOf(err) == "" {
				t.Errorf("the error names no field: %v", err)
			}
			return
		}
		want := []string{"x", a, a + b, "-" + b + "-", "-l", a, "-l", b, supervisor.SecretPath("s")}
		if !slices.Equal(spec.Command.Argv, want) || !bytes.Equal(spec.Stdin, []byte(a+"\n"+b)) || !slices.Contains(spec.Command.Env, "A="+a) {
			t.Errorf("%q and %q become %q", a, b, spec.Command.Argv)
		}
	})
}

// FuzzTemplate: a text is a template or refused, and what is not in braces stays.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"", "a", "{{.a}}", "{{.a...}}b", "{{file .a}}", `{{"{{"}}`, "{{", "}}", "{{}}", "{{.a}", "{ {.a}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTemplate(text)
		if strings.Contains(text, leftBraces) {
			return
		}
		if err != nil || len(got.names()) > 0 || len(got) > 1 || len(got) == 1 && got[0].literal != text {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	})
}

func TestPrivateFolder(t *testing.T) {
	for text, want := range map[string]supervisor.Spec{
		"cwd: private":                                {Private: true, Command: proc.Spec{Dir: supervisor.PrivateDir}, Result: supervisor.Result{From: "exit-code"}},
		"cwd: /srv, result: {from: file}":             {Private: true, Command: proc.Spec{Dir: "/srv"}, Result: supervisor.Result{From: "file"}},
		"cwd: ./private":                              {Command: proc.Spec{Dir: "/etc/harp/private"}, Result: supervisor.Result{From: "exit-code"}},
		"cwd: private, result: {from: file, path: x}": {Private: true, Command: proc.Spec{Dir: supervisor.PrivateDir}, Result: supervisor.Result{From: "file", Path: "x"}},
	} {
		spec, err := prepare(t, one(t, "x: {command: [./a], "+text+"}\n"), nil, false)
		if err != nil || spec.Private != want.Private || spec.Command.Dir != want.Command.Dir || spec.Result.From != want.Result.From || spec.Result.Path != want.Result.Path {
			t.Errorf("%s: %v, %+v", text, err, spec)
		}
	}
}
