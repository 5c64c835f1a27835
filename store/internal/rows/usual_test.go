package rows

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// usualRows are the rows of every job without what few jobs have.
func usualRows() map[string]any {
	j := fullJob()
	i, _ := parseID(j.ID)
	call, life := newCallRow(j, &[32]byte{1}), newLifeRow(&j.Life)
	call.Labels, call.Retry = nil, harp.RetryPolicy{}
	call.Request, life.Value = &harp.Submission{Request: []byte("r"), Signature: []byte("s"), KeyID: "k"}, []byte{1}
	life.Cancel, life.Stopping, life.Failure, life.Late, life.Left = nil, nil, harp.Failure{}, nil, nil
	return map[string]any{
		"call":       call,
		"life":       life,
		"submission": harp.Submission{Request: []byte("r"), Signature: []byte("s"), KeyID: "k"},
		"event": eventRow{
			At: 1, Type: "t", Job: i[:], Host: "h", Procedure: "p", Queue: j.Queue, State: "s", Reason: "r", Attempt: 2, By: &j.Principal,
		},
	}
}

// TestUsualRows: the bytes of the rows that every job has are golden.
func TestUsualRows(t *testing.T) {
	var b strings.Builder
	for _, what := range []string{"call", "life", "submission", "event"} {
		fmt.Fprintf(&b, "%s\n%s", what, hex.Dump(encode(usualRows()[what])))
	}
	records := []harp.Record{
		{Time: noon, Kind: harp.KindStdout, Partial: true, Truncated: 300, Value: harp.Value{1}},
		{Time: noon, Kind: "another", Value: harp.Value{}},
		{},
	}
	fmt.Fprintf(&b, "chunk\n%s", hex.Dump(encodeChunk(records, noon)))
	isGolden(t, "testdata/usual.golden", b.String())
}
