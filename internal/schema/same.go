package schema

import "math"

// isSame reports whether two values are equal as JSON Schema has it: numbers by what they
// are, not by their type.
func isSame(x, y any) bool {
	switch x := x.(type) {
	case int64:
		return isInt(y, x)
	case uint64:
		return isUint(y, x)
	case float64:
		return isFloat(y, x)
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !isSame(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name := range x {
			if other, ok := y[name]; !ok || !isSame(x[name], other) {
				return false
			}
		}
		return true
	case nil, bool, string:
		return x == y
	}
	return false // it is not of JSON
}

func isInt(v any, i int64) bool {
	switch v := v.(type) {
	case int64:
		return v == i
	case uint64:
		return i >= 0 && v == uint64(i)
	case float64:
		return v == math.Trunc(v) && v >= math.MinInt64 && v < math.MaxInt64 && int64(v) == i
	}
	return false
}

func isUint(v any, u uint64) bool {
	switch v := v.(type) {
	case int64:
		return v >= 0 && uint64(v) == u
	case uint64:
		return v == u
	case float64:
		return v == math.Trunc(v) && v >= 0 && v < math.MaxUint64 && uint64(v) == u
	}
	return false
}

func isFloat(v any, f float64) bool {
	switch v := v.(type) {
	case int64:
		return isInt(f, v)
	case uint64:
		return isUint(f, v)
	case float64:
		return v == f
	}
	return false
}
