package wire

import (
	"errors"
	"fmt"

	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

// NewExplained makes an answer of an explanation. The parts are a list here, as trees in
// messages have a bounded depth. Errors: harp.ErrRefused, for one that is too long.
func NewExplained(n target.Node) (Explained, error) {
	var parts []ExplainedPart
	appendParts(&parts, n, 0)
	m := Explained{Parts: NewRows(parts, MaxRows)}
	if len(m.Parts) < len(parts) {
		return Explained{}, failures.New("refused", fmt.Sprintf("the target has %d parts, too many to be explained", len(parts))).Err()
	}
	return m, nil
}

func appendParts(parts *[]ExplainedPart, n target.Node, depth int) {
	*parts = append(*parts, ExplainedPart{Depth: depth, Text: n.Text, Hosts: n.Hosts, Value: n.Value})
	for _, part := range n.Parts {
		appendParts(parts, part, depth+1)
	}
}

// Node returns the explanation. Errors: that the parts are none.
func (m Explained) Node() (target.Node, error) {
	var root target.Node
	path := []*target.Node{} // to the part that was read last
	for _, row := range m.Parts {
		var p ExplainedPart
		if err := Decode(row, &p); err != nil {
			return target.Node{}, err
		}
		if p.Depth < 0 || p.Depth > len(path) || (p.Depth == 0) != (len(path) == 0) {
			return target.Node{}, errors.New("parts of no tree")
		}
		n := &root
		if p.Depth > 0 {
			parent := path[p.Depth-1]
			parent.Parts = append(parent.Parts, target.Node{})
			n = &parent.Parts[len(parent.Parts)-1]
		}
		n.Text, n.Hosts, n.Value = p.Text, p.Hosts, p.Value
		path = append(path[:p.Depth], n)
	}
	if len(path) == 0 {
		return target.Node{}, errors.New("no parts")
	}
	return root, nil
}
