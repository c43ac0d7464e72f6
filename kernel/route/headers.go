package route

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// pattern is what the arguments of a binding ask of the headers.
type pattern struct {
	any  bool // one is enough
	want []kernel.Field
}

// newPattern reads the arguments of a binding to a headers exchange. Those that
// begin with "x-" ask for nothing, unless the way to match says so.
func newPattern(args []kernel.Argument) (*pattern, error) {
	p, all := &pattern{}, false
	for i := range args {
		if args[i].Name != kernel.ArgMatch {
			continue
		}
		how, ok := args[i].Value.(string)
		switch {
		case !ok:
			return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "Invalid x-match field type; expected longstr")
		case how == "all" || how == "any":
		case how == "all-with-x" || how == "any-with-x":
			all = true
		default:
			return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "Invalid x-match field value %q; expected all, any, all-with-x, or any-with-x", how)
		}
		p.any = strings.HasPrefix(how, "any")
	}
	for i := range args {
		if name := args[i].Name; name != kernel.ArgMatch && (all || !strings.HasPrefix(name, "x-")) {
			p.want = append(p.want, fieldOf(&args[i]))
		}
	}
	return p, nil
}

// fieldOf is an argument as it is compared.
func fieldOf(a *kernel.Argument) kernel.Field {
	f := kernel.Field{Name: a.Name}
	switch v := a.Value.(type) {
	case bool:
		f.Kind = kernel.FieldBool
		if v {
			f.Bits = 1
		}
	case int64:
		f.Kind, f.Bits = kernel.FieldInt, uint64(v)
	case float64:
		f.Kind, f.Bits = kernel.FieldFloat, math.Float64bits(v)
	case string:
		f.Kind, f.Text = kernel.FieldText, v
	case []byte:
		f.Kind, f.Text = kernel.FieldText, string(v)
	case kernel.Raw:
		f.Kind, f.Text = kernel.FieldOther, string(v)
	}
	return f
}

// matches compares with the headers of a message, prepared by sortFields. An
// argument without value asks for the presence of the header.
func (p *pattern) matches(fields []kernel.Field) bool {
	for i := range p.want {
		w := &p.want[i]
		f := find(fields, w.Name)
		ok := f != nil && (w.Kind == kernel.FieldNil || same(f, w))
		if ok == p.any {
			return ok
		}
	}
	return !p.any
}

// same compares two values; numbers compare as numbers.
func same(a, b *kernel.Field) bool {
	switch {
	case a.Kind == b.Kind:
		return a.Bits == b.Bits && a.Text == b.Text
	case a.Kind == kernel.FieldInt && b.Kind == kernel.FieldFloat:
		return float64(int64(a.Bits)) == math.Float64frombits(b.Bits)
	case a.Kind == kernel.FieldFloat && b.Kind == kernel.FieldInt:
		return same(b, a)
	}
	return false
}

// fewFields is how many headers are searched from end to end.
const fewFields = 8

// sortFields prepares headers for find: of equal names the first counts.
func sortFields(fields []kernel.Field) {
	if len(fields) > fewFields {
		slices.SortStableFunc(fields, func(a, b kernel.Field) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// find returns a header by name, nil without one.
func find(fields []kernel.Field, name string) *kernel.Field {
	if len(fields) <= fewFields {
		for i := range fields {
			if fields[i].Name == name {
				return &fields[i]
			}
		}
		return nil
	}
	i := sort.Search(len(fields), func(i int) bool { return fields[i].Name >= name })
	if i < len(fields) && fields[i].Name == name {
		return &fields[i]
	}
	return nil
}
