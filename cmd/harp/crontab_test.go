package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/manifest"
)

// TestCrontabFilesAreRead checks that schedules can be made of what was imported, and that an agent takes the procedures.
func TestCrontabFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "ada's table.txt")
	const text = "A = {{x}}\nPATH=/usr/bin:/bin\n*/5 * * * * echo \"{{.name}}\" '{{' $A; cat%a {{file .b}}%\n@daily :\n"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
	if err := c.importCrontab(&crontabFlags{target: "role=db", ofUser: true, dir: dir}, table); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Read(dir)
	if err != nil || len(set.Documents) != 2 {
		t.Fatalf("read %+v, %v", set, err)
	}
	if s := set.Documents[0].Schedule; s.Name != "ada-s-table.3" || s.Request.Procedure != s.Name || s.Request.Target != "role=db" || s.Check() != nil {
		t.Errorf("the first is %+v", s)
	}
	if set.Documents[1].Kind() != harp.ScheduleDocument || set.Documents[1].Schedule.Cron != "@daily" {
		t.Errorf("the second is %+v", set.Documents[1])
	}
	if err := agent.New(agent.Config{}).Load(filepath.Join(dir, "procedures")); err != nil {
		t.Error(err)
	}
}

// TestCrontabOfAHiddenFile: the documents of a table that is a hidden file are none, and so they are read.
func TestCrontabOfAHiddenFile(t *testing.T) {
	for _, name := range []string{".crontab", ".ada.crontab", "..."} {
		from, dir := t.TempDir(), t.TempDir()
		table := filepath.Join(from, name)
		if err := os.WriteFile(table, []byte("@daily :\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
		if err := c.importCrontab(&crontabFlags{target: "role=db", ofUser: true, dir: dir}, table); err != nil {
			t.Fatal(err)
		}
		if set, err := manifest.Read(dir); err != nil || len(set.Documents) != 1 {
			t.Errorf("%s: read %+v, %v", name, set, err)
		}
		if found, err := filepath.Glob(filepath.Join(dir, "procedures", "[^.]*.yaml")); err != nil || len(found) != 1 {
			t.Errorf("%s: procedures are in %q, %v", name, found, err)
		}
	}
}
