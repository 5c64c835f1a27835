package main

import (
	"bytes"
	"log"
	"regexp"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), t.TempDir(), log.New(&out, "", 0).Printf); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^job ([0-9a-f-]{36})
  1 of 3: /etc/hosts
  2 of 3: /etc/passwd
  3 of 3: /etc/fstab
result: 3 files
the dispatcher was closed and opened again; read from disk:
job ([0-9a-f-]{36}) succeeded on web01: 3 records, 3 files
$`)
	ids := want.FindStringSubmatch(out.String())
	if ids == nil || ids[1] != ids[2] {
		t.Errorf("it printed\n%s", out.String())
	}
}
