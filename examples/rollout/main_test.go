package main

import (
	"bytes"
	"log"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), log.New(&out, "", 0).Printf); err != nil {
		t.Fatal(err)
	}
	const want = `v2 on 40 hosts
  web03: no space left on /var
  web17: no space left on /var
failed: of 40 hosts 15 are done, 2 failed, 23 did not begin
the disks are cleared: retrying
succeeded: of 25 hosts 25 are done, 0 failed, 0 did not begin
`
	if out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", out.String(), want)
	}
}
