package config

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteYAML writes all settings as a file that sets them, with where each value
// comes from in a comment. Secrets are hidden.
func (l *Loaded) WriteYAML(w io.Writer) error {
	section := ""
	for _, s := range l.Settings {
		name, key, _ := strings.Cut(s.Name, ".")
		if name != section {
			if _, err := fmt.Fprintf(w, "%s:\n", name); err != nil {
				return err
			}
			section = name
		}
		value, err := yaml.Marshal(s.typed())
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if _, err := fmt.Fprintf(w, "  %s: %s # %s\n", key, strings.TrimSpace(string(value)), s.Where); err != nil {
			return err
		}
	}
	return nil
}

// shown is a setting in JSON.
type shown struct {
	Value any    `json:"value"`
	From  string `json:"from"`
	Where string `json:"where"`
}

// WriteJSON writes all settings as {"section":{"key":{"value":…,"from":…,"where":…}}}.
func (l *Loaded) WriteJSON(w io.Writer) error {
	out := map[string]map[string]shown{}
	for _, s := range l.Settings {
		section, key, _ := strings.Cut(s.Name, ".")
		if out[section] == nil {
			out[section] = map[string]shown{}
		}
		out[section][key] = shown{s.typed(), s.Origin, s.Where}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// typed is the value: a number, a truth value, a list or a text.
func (s *Setting) typed() any {
	switch f := s.field; {
	case s.Secret:
		return s.Value()
	case f.Kind() == reflect.Slice:
		return list(split(s.Value()))
	case f.Type() == reflect.TypeFor[int](), f.Kind() == reflect.Bool:
		return f.Interface()
	}
	return s.Value()
}

// list is written on one line.
type list []string

// MarshalYAML implements yaml.Marshaler.
func (l list) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range l {
		e := &yaml.Node{}
		e.SetString(text)
		n.Content = append(n.Content, e)
	}
	return n, nil
}

// MarshalJSON implements json.Marshaler: an empty list is no null.
func (l list) MarshalJSON() ([]byte, error) { return json.Marshal(append([]string{}, l...)) }

// Table is the documentation of all settings, in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| setting | flag | default | what |\n|---|---|---|---|\n")
	for _, s := range newLoaded().Settings {
		value := s.Default
		if value != "" {
			value = "`" + value + "`"
		}
		about := s.About
		if len(s.choice) > 0 {
			about += " (" + strings.ReplaceAll(s.Arg, "|", ", ") + ")"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s |\n", s.Name, s.Flag, value, about)
	}
	return b.String()
}
