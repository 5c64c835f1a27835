package schema

import (
	"fmt"
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
	return &harp.FieldError{Field: path, Message: "must " + strings.Join(must, ", ") + "; is not, and is a secret, which is not shown"}
}
