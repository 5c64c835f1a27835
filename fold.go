package harp

import (
	"cmp"
	"iter"
	"slices"
)

// Folded is what several hosts of a batch ended with alike.
type Folded struct {
	Hosts  []string `json:"hosts"`  // by name
	Result Result   `json:"result"` // of each, but for its times
}

// Fold puts hosts together that ended in the same state with the same value or failure, most hosts
// first. With an error, that of results, it returns what came before that.
func Fold(results iter.Seq2[HostResult, error]) ([]Folded, error) {
	var folded []Folded
	at := map[foldKey]int{}
	for r, err := range results {
		if err != nil {
			return sortFolded(folded), err
		}
		key := keyOf(r.Result)
		n, known := at[key]
		if !known {
			n = len(folded)
			at[key] = n
			alike := Result{State: r.State, Value: r.Value, Err: r.Err, ExitCode: r.ExitCode, Procedure: r.Procedure}
			folded = append(folded, Folded{Result: alike})
		}
		folded[n].Hosts = append(folded[n].Hosts, r.Host)
	}
	return sortFolded(folded), nil
}

// foldKey is what is the same of results that are folded.
type foldKey struct {
	state                         State
	value                         string
	code, kind, message, data, of string
	exit                          int
}

func keyOf(r Result) foldKey {
	value, err := r.Value.Canonical()
	if err != nil {
		value = r.Value // a map in it holds a key twice
	}
	f := FailureOf(r.Err)
	key := foldKey{state: r.State, value: string(value), code: f.Code, kind: f.Type, message: f.Message, data: string(f.Data), of: f.LimitOf, exit: -1}
	if r.ExitCode != nil {
		key.exit = *r.ExitCode
	}
	return key
}

func sortFolded(folded []Folded) []Folded {
	for i := range folded {
		slices.Sort(folded[i].Hosts)
	}
	slices.SortStableFunc(folded, func(a, b Folded) int {
		return cmp.Or(cmp.Compare(len(b.Hosts), len(a.Hosts)), cmp.Compare(a.Hosts[0], b.Hosts[0]))
	})
	return folded
}
