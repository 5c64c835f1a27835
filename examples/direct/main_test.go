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
	want := `  1 is a divisor of 12
  2 is a divisor of 12
  3 is a divisor of 12
  4 is a divisor of 12
  6 is a divisor of 12
  12 is a divisor of 12
12 is prime: false
  1 is a divisor of 13
  13 is a divisor of 13
13 is prime: true
-1: -1 has no divisors (type not_positive)
`
	if out.String() != want {
		t.Errorf("it printed\n%swant\n%s", out.String(), want)
	}
}
