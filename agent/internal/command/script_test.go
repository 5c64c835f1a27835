package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/internal/wire"
)

// scripts is a folder with procedures that name a script in a folder beside it.
func scripts(t *testing.T, command string) (folderOf, script string) {
	t.Helper()
	dir := folder(t, nil)
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil { //nolint:gosec // nobody else can write it
		t.Fatal(err)
	}
	script = filepath.Join(bin, "run.sh")
	writeScript(t, script, "#!/bin/sh\n")
	text := strings.ReplaceAll("x: {command: "+command+", cwd: .}\n", "BIN", bin)
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, script
}

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestScriptsThatOthersCanWriteAreRefused: who can change what a procedure runs runs
// commands here, whatever the file of the procedure says.
func TestScriptsThatOthersCanWriteAreRefused(t *testing.T) {
	for _, command := range []string{
		"[./bin/run.sh]", "[BIN/run.sh]", "[sh, BIN/run.sh]", "[sh, -x, bin/run.sh]", "[sudo, -u, nobody, BIN/run.sh]", "[env, A=1, python3, -u, bin/run.sh]",
		"[awk, -f, bin/run.sh]", `["true"], dry_run: [./bin/run.sh]`, "[run.sh], env: {PATH: '/none:BIN'}", "[xargs, run.sh], env: {PATH: BIN}",
	} {
		dir, script := scripts(t, command)
		list, err := Load(dir, hasAll, wire.MaxMessage)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v", command, err)
		}
		bad := filepath.Dir(script)
		for path, good := range map[string]fs.FileMode{script: 0o755, bad: 0o755} {
			chmod(t, path, 0o777)
			_, err := Load(dir, hasAll, wire.MaxMessage)
			if !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), path+" can be written by others") || !strings.Contains(err.Error(), "a.yaml:1: x.") {
				t.Errorf("%s with %s open: %v", command, path, err)
			}
			// What was opened after it was loaded is seen by the next call.
			_, err = list[0].Prepare(Call{DryRun: list[0].DryRun})
			if err == nil || !strings.Contains(err.Error(), path+" can be written by others") {
				t.Errorf("a call of %s with %s open: %v", command, path, err)
			}
			chmod(t, path, good)
		}
		if _, err := list[0].Prepare(Call{DryRun: list[0].DryRun}); err != nil {
			t.Errorf("a call of %s: %v", command, err)
		}
	}
}

// TestScriptsBehindLinksAreChecked: a link is as good as what it leads to, and as its
// owner.
func TestScriptsBehindLinksAreChecked(t *testing.T) {
	dir, script := scripts(t, "[./bin/link]")
	if err := os.Symlink(script, filepath.Join(dir, "bin", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, hasAll, wire.MaxMessage); err != nil {
		t.Fatal(err)
	}
	chmod(t, script, 0o775)
	if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), script+" can be written by others") {
		t.Errorf("behind a link: %v", err)
	}
}

// TestInterpretersOfScriptsAreChecked: a script runs what its first line names.
func TestInterpretersOfScriptsAreChecked(t *testing.T) {
	dir, script := scripts(t, "[./bin/run.sh]")
	interpreter := filepath.Join(dir, "interpreter")
	writeScript(t, interpreter, "#!/bin/sh\n")
	for _, first := range []string{"#!" + interpreter + "\n", "#! " + interpreter + " -x\n", "#!/usr/bin/env " + interpreter + "\n"} {
		writeScript(t, script, first)
		chmod(t, interpreter, 0o755)
		if _, err := Load(dir, hasAll, wire.MaxMessage); err != nil {
			t.Errorf("%q: %v", first, err)
		}
		chmod(t, interpreter, 0o777)
		if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), interpreter+" can be written by others") {
			t.Errorf("%q: %v", first, err)
		}
	}
}

// TestFoldersOnTheWayAreChecked: who can rename a folder above the procedures can put
// others there.
func TestFoldersOnTheWayAreChecked(t *testing.T) {
	above := folder(t, nil)
	dir := filepath.Join(above, "procedures")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, above, 0o777)
	if _, err := Load(dir, hasAll, wire.MaxMessage); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), above+": can be written by others") {
		t.Errorf("below an open folder: %v", err)
	}
	chmod(t, above, 0o777|fs.ModeSticky) // as /tmp: only the owner can rename what is in it
	if _, err := Load(dir, hasAll, wire.MaxMessage); err != nil {
		t.Errorf("below a sticky folder: %v", err)
	}
}

// TestScriptsOfTheCommandsUser: a command's own user may change what runs as that user,
// and nobody else.
func TestScriptsOfTheCommandsUser(t *testing.T) {
	needs.Root(t)
	for user, want := range map[string]string{"'65534'": "", "'0'": "is owned by user 65534"} {
		dir, script := scripts(t, "[./bin/run.sh], user: "+user+", group: "+user+", groups: []")
		if err := os.Chown(script, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir, hasAll, wire.MaxMessage)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("as user %s: %v", user, err)
		}
	}
}

// TestProgramsOfExecAreChecked: the programs that the configuration lists are looked at
// at each call.
func TestProgramsOfExecAreChecked(t *testing.T) {
	program := filepath.Join(folder(t, nil), "run.sh")
	writeScript(t, program, "#!/bin/sh\n")
	c := mustExec(t, ExecPolicy{Commands: []string{program}})
	call := harp.Args{"argv": []string{program}}
	if _, err := prepare(t, c, call, false); err != nil {
		t.Fatal(err)
	}
	chmod(t, program, 0o777)
	if _, err := prepare(t, c, call, false); err == nil || !strings.Contains(err.Error(), program+" can be written by others") {
		t.Errorf("error is %v", err)
	}
}

// TestMissingScriptsAreFound: a check names what a command could not execute, of which an agent
// says nothing before it is called.
func TestMissingScriptsAreFound(t *testing.T) {
	for commands, want := range map[string]string{
		"[./gone]":                      "command: {dir}/gone does not exist",
		"[./plain]":                     "command: {dir}/plain is not executable",
		"[./script]":                    "command: the interpreter of {dir}/script: /no/such/shell does not exist",
		"[no-such-program]":             "",
		"[sh, gone.sh]\n  cwd: .":       "command: {dir}/gone.sh does not exist",
		"[sh, plain]\n  cwd: .":         "",
		"[sh, -c, 'true']":              "",
		"[sh]\n  dry_run: [./gone]":     "dry_run: {dir}/gone does not exist",
		"[sh, made.sh]\n  cwd: private": "",
	} {
		dir := t.TempDir()
		for name, file := range map[string]struct {
			text string
			mode os.FileMode
		}{
			"f.yaml": {"x:\n  command: " + commands + "\n", 0o644},
			"plain":  {"true\n", 0o644},
			"script": {"#!/no/such/shell\n", 0o755},
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(file.text), file.mode); err != nil {
				t.Fatal(err)
			}
		}
		able := func(string) error { return nil }
		if _, err := Load(dir, able, harp.MaxResult); err != nil {
			t.Errorf("%s: an agent does not take it: %v", commands, err)
		}
		_, err := Check(dir, able, harp.MaxResult)
		want = strings.ReplaceAll(want, "{dir}", dir)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, harp.ErrInvalid) || !strings.HasSuffix(err.Error(), "x."+want)) {
			t.Errorf("%s: %v, want %q", commands, err, want)
		}
	}
}
