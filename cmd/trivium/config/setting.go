package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Origins of a setting's value.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "environment"
	FromFlag    = "flag"
)

// Setting is one thing that can be set, and what it is set to.
type Setting struct {
	Name    string // section.key
	Flag    string // without dashes
	Env     string
	Default string
	About   string // plain text
	Arg     string // what the flag's argument is called, "" = after its type
	Secret  bool
	Origin  string // where the value comes from
	Where   string // the same in detail: file and line, variable, flag

	field  reflect.Value
	choice []string // nil = any
	lo, hi string   // bounds, "" = none
}

// Value is the value as text; secrets are hidden.
func (s *Setting) Value() string {
	v := format(s.field)
	if s.Secret && v != "" {
		return "********"
	}
	return v
}

// set takes a text from somewhere, if it is a value that is allowed.
func (s *Setting) set(text, origin, where string) error {
	old := reflect.New(s.field.Type()).Elem()
	old.Set(s.field)
	err := parse(s.field, text)
	if err == nil {
		err = s.bounds(text)
	}
	if err != nil {
		s.field.Set(old)
		return err
	}
	s.Origin, s.Where = origin, where
	return nil
}

func (s *Setting) bounds(text string) error {
	if s.choice != nil && !slices.Contains(s.choice, text) {
		return fmt.Errorf("%q is none of %s", text, strings.Join(slices.DeleteFunc(slices.Clone(s.choice), func(c string) bool { return c == "" }), ", "))
	}
	if s.lo != "" && compare(s.field, s.lo) < 0 || s.hi != "" && compare(s.field, s.hi) > 0 {
		if s.hi == "" {
			return fmt.Errorf("%s is less than %s", text, s.lo)
		}
		return fmt.Errorf("%s is not between %s and %s", text, s.lo, s.hi)
	}
	return nil
}

// settings lists the settings of c in order, with their defaults set. A default
// that cannot be is a defect, which panics.
func settings(c *Config) []*Setting {
	var out []*Setting
	root := reflect.ValueOf(c).Elem()
	for i := range root.NumField() {
		section := root.Type().Field(i).Tag.Get("key")
		for j := range root.Field(i).NumField() {
			s := newSetting(section, root.Field(i).Type().Field(j).Tag, root.Field(i).Field(j))
			if s.Default != "" {
				if err := s.set(s.Default, FromDefault, FromDefault); err != nil {
					panic("config: default of " + s.Name + ": " + err.Error())
				}
			}
			out = append(out, s)
		}
	}
	return out
}

func newSetting(section string, tag reflect.StructTag, field reflect.Value) *Setting {
	key := tag.Get("key")
	s := &Setting{
		Name: section + "." + key, Default: tag.Get("default"), Flag: tag.Get("flag"),
		Env: envPrefix + strings.ToUpper(section+"_"+key), Secret: tag.Get("secret") != "",
		Origin: FromDefault, Where: FromDefault,
		field: field, lo: tag.Get("min"), hi: tag.Get("max"),
	}
	if s.Flag == "" {
		s.Flag = strings.ReplaceAll(section+"-"+key, "_", "-")
	}
	if c, ok := tag.Lookup("choice"); ok {
		s.choice = strings.Split(c, "|")
	}
	about := tag.Get("about")
	if _, rest, ok := strings.Cut(about, "''"); ok {
		s.Arg, _, _ = strings.Cut(rest, "''")
	}
	s.About = strings.ReplaceAll(about, "''", "")
	if len(s.choice) > 0 {
		s.Arg = strings.Join(slices.DeleteFunc(slices.Clone(s.choice), func(c string) bool { return c == "" }), "|")
	}
	return s
}
