package cli

import (
	"encoding/json"
	"strings"
)

// arguments reads NAME=VALUE pairs. A value that is JSON (a number, true, false,
// an object, a quoted text) is that, anything else a text.
func arguments(pairs []string) (map[string]any, error) {
	args := map[string]any{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usage("--argument is NAME=VALUE, not %q", pair)
		}
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			args[name] = json.RawMessage(text)
			continue
		}
		args[name] = text
	}
	return args, nil
}
