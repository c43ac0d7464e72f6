package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// column is one column of a table: its title, and where the value is in a row;
// a.b means field b within a.
type column struct{ title, field string }

// rawList is a listing as the node sent it.
type rawList []json.RawMessage

// print prints a listing in the format that was asked for.
func (a *app) print(rows rawList, columns []column) error {
	switch a.format {
	case "json":
		if rows == nil {
			rows = rawList{}
		}
		return a.printJSON(rows)
	case "yaml":
		list := make([]any, len(rows))
		for i := range rows {
			v, err := decode(rows[i])
			if err != nil {
				return err
			}
			list[i] = v
		}
		return a.printYAML(list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		fmt.Fprint(w, separator(i), strings.ToUpper(c.title))
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		v, err := decode(row)
		if err != nil {
			return err
		}
		for i, c := range columns {
			fmt.Fprint(w, separator(i), cell(field(v, c.field)))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return "\t"
}

// printOne prints one resource; as a table it is one line per field.
func (a *app) printOne(row json.RawMessage) error {
	switch a.format {
	case "json":
		return a.printJSON(row)
	case "yaml":
		v, err := decode(row)
		if err != nil {
			return err
		}
		return a.printYAML(v)
	}
	v, err := decode(row)
	if err != nil {
		return err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("the answer is no object")
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, name := range names {
		fmt.Fprintf(w, "%s\t%s\n", name, cell(m[name]))
	}
	return w.Flush()
}

func (a *app) printJSON(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	b.WriteByte('\n')
	_, err = a.out.Write(b.Bytes())
	return err
}

func (a *app) printYAML(v any) error {
	enc := yaml.NewEncoder(a.out)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return enc.Close()
}

// decode is a row with whole numbers as int64.
func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("the answer is not that of a node: %w", err)
	}
	return numbers(v), nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // a number that JSON has
		return f
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

func field(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// cell is a value in a table: one line, and nothing that a terminal obeys.
func cell(v any) string {
	text := ""
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		text = v
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = cell(v[i])
		}
		text = strings.Join(parts, ",")
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		text = string(raw)
	default:
		text = fmt.Sprint(v)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}
