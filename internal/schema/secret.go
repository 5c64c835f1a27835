package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/harpcaller/harp"
)

// isSecret reports whether a value is not to be shown.
func isSecret(s *jsonschema.Schema) bool { return s != nil && s.WriteOnly }

// secretError says what a secret must be. Nothing in it depends on what the secret is.
func secretError(path string, s *jsonschema.Schema) *harp.FieldError {
	must := []string{"be " + expected(s)}
	for _, length := range []struct {
		words string
		limit *int
	}{
		{"have at least %d characters", s.MinLength},
		{"have at most %d characters", s.MaxLength},
		{"have at least %d elements", s.MinItems},
		{"have at most %d elements", s.MaxItems},
	} {
		if length.limit != nil {
			must = append(must, fmt.Sprintf(length.words, *length.limit))
		}
	}
	for _, bound := range []struct {
		words string
		limit *float64
	}{
		{"be at least ", s.Minimum},
		{"be at most ", s.Maximum},
		{"be more than ", s.ExclusiveMinimum},
		{"be less than ", s.ExclusiveMaximum},
	} {
		if bound.limit != nil {
			must = append(must, bound.words+limitText(s, *bound.limit))
		}
	}
	for _, part := range append([]*jsonschema.Schema{s}, s.AllOf...) {
		if part != nil && part.Pattern != "" {
			must = append(must, "match "+shorten(part.Pattern))
		}
	}
	return &harp.FieldError{Field: path, Message: "must " + strings.Join(must, ", ") + "; the value is a secret and is not shown"}
}

// HiddenArg is what is shown in place of an argument that is a secret.
const HiddenArg = "***"

// everyArg stands for all arguments among the names of those that hold secrets.
const everyArg = "*"

// EveryArg is what [HideArgs] takes to hide all arguments.
func EveryArg() []string { return []string{everyArg} }

// SecretArgs returns which of these arguments are secrets, or hold one: their names, of
// positional ones their places. [HideArgs] takes them.
func (a *Args) SecretArgs(args harp.Value) []string {
	if !holdsSecret(a.schema) {
		return nil
	}
	got, err := args.Any()
	outside := *a.schema // what is said of the arguments otherwise than one by one
	outside.Properties, outside.AdditionalProperties, outside.Items, outside.PrefixItems = nil, nil, nil, nil
	if err != nil || holdsSecret(&outside) {
		return EveryArg()
	}
	var names []string
	switch got := got.(type) {
	case map[string]any:
		for name := range got {
			if holdsSecret(property(a.schema, name)) {
				names = append(names, name)
			}
		}
	case []any:
		for i := range got {
			one := item(a.schema, i)
			if i < len(a.params) {
				one = property(a.schema, a.params[i])
			}
			if holdsSecret(one) {
				names = append(names, strconv.Itoa(i))
			}
		}
	}
	slices.Sort(names)
	return names
}

// holdsSecret reports whether there may be a secret in a value.
func holdsSecret(s *jsonschema.Schema) bool {
	return s != nil && (isSecret(s) || slices.ContainsFunc(partsOf(s), holdsSecret))
}

// HideArgs returns arguments as they may be shown: without those of these names, which
// [Args.SecretArgs] returned for them.
func HideArgs(args harp.Value, names []string) (harp.Value, error) {
	if len(names) == 0 {
		return args, nil
	}
	got, err := args.Any()
	if err != nil {
		return nil, inArgs(err)
	}
	hidden := func(name string) bool { return slices.Contains(names, name) }
	switch got := got.(type) {
	case map[string]any:
		for name := range got {
			if hidden(name) || hidden(everyArg) {
				got[name] = HiddenArg
			}
		}
	case []any:
		for i := range got {
			if hidden(strconv.Itoa(i)) || hidden(everyArg) {
				got[i] = HiddenArg
			}
		}
	}
	return harp.NewValue(got)
}
