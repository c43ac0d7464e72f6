package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const envPrefix = "TRIVIUM_"

// reservedEnv are names with our prefix that the project's own tests and
// scripts use; they are no settings.
var reservedEnv = map[string]bool{"BIN": true, "CRASH_ROUNDS": true, "HISTORIES": true, "SEED": true, "NEMESES": true, "CHAOS": true, "LOGS": true, "AMQP_ADDR": true, "URL": true, "USER": true, "PASSWORD": true}

// Loaded is a configuration and where each part of it comes from.
type Loaded struct {
	Config   Config
	Settings []*Setting
	byName   map[string]*Setting
}

func newLoaded() *Loaded {
	l := &Loaded{byName: map[string]*Setting{}}
	l.Settings = settings(&l.Config)
	for _, s := range l.Settings {
		l.byName[s.Name] = s
	}
	return l
}

// Flags are the command line's settings. Register before parsing, then give
// them to Load.
type Flags struct {
	file string
	set  []given
}

// given is a flag of the command line.
type given struct{ name, text string }

// Register adds --config and a flag for every setting.
func (f *Flags) Register(to *pflag.FlagSet) {
	to.StringVar(&f.file, "config", "", "YAML configuration `file`")
	for _, s := range newLoaded().Settings {
		about := s.About
		if s.Default != "" {
			about += " (default " + s.Default + ")"
		}
		v := to.VarPF(&flagValue{to: f, setting: s}, s.Flag, "", about)
		if s.field.Kind() == reflect.Bool {
			v.NoOptDefVal = "true"
		}
	}
}

// flagValue is a pflag.Value that notes what it is set to.
type flagValue struct {
	to      *Flags
	setting *Setting
}

func (v *flagValue) String() string { return "" }
func (v *flagValue) Set(text string) error {
	v.to.set = append(v.to.set, given{v.setting.Name, text})
	return nil
}

func (v *flagValue) Type() string {
	if v.setting.Arg != "" {
		return v.setting.Arg
	}
	switch t := v.setting.field.Type().String(); t {
	case "time.Duration":
		return "duration"
	case "int", "string", "bool":
		return t
	case "config.Bytes":
		return "size"
	default:
		return "value"
	}
}

// Load applies file, environment and flags over the defaults, in this order,
// and checks the result. The error, if there is one, is Problems.
func Load(f *Flags, environ []string) (*Loaded, error) {
	l := newLoaded()
	p := &problems{loaded: l}
	if f.file != "" {
		l.loadFile(f.file, p)
	}
	l.loadEnv(environ, p)
	for _, g := range f.set {
		s := l.byName[g.name]
		if err := s.set(g.text, FromFlag, "--"+s.Flag); err != nil {
			p.at("--"+s.Flag, s.Name, "%v", err)
		}
	}
	l.Config.check(p)
	return l, p.err()
}

func (l *Loaded) loadFile(path string, p *problems) {
	f, err := os.Open(path)
	if err != nil {
		p.at(path, "", "%v", errors.Unwrap(err))
		return
	}
	defer f.Close()
	var doc, more yaml.Node
	dec := yaml.NewDecoder(f)
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return
	} else if err != nil {
		p.at(path, "", "%s", oneLine(err))
		return
	}
	if dec.Decode(&more) == nil {
		p.at(fmt.Sprintf("%s:%d", path, more.Line), "", "a second document")
	}
	for section := range pairs(path, "", doc.Content[0], p) {
		known := false
		for _, s := range l.Settings {
			known = known || strings.HasPrefix(s.Name, section.name+".")
		}
		if !known {
			p.at(section.where, "", "unknown section %s", section.name)
			continue
		}
		for key := range pairs(path, section.name, section.value, p) {
			l.fileSetting(section.name, key, p)
		}
	}
}

func (l *Loaded) fileSetting(section string, key entry, p *problems) {
	name := section + "." + key.name
	s, ok := l.byName[name]
	if !ok {
		p.at(key.where, "", "unknown key %s", name)
		return
	}
	text, err := scalar(key.value)
	if err == nil {
		err = s.set(text, FromFile, key.where)
	}
	if err != nil {
		p.at(key.where, name, "%v", err)
	}
}

// entry is a key of a mapping in the file.
type entry struct {
	name, where string
	value       *yaml.Node
}

// pairs yields the entries of a mapping.
func pairs(path, name string, n *yaml.Node, p *problems) func(func(entry) bool) {
	return func(yield func(entry) bool) {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			return // a section with nothing in it
		}
		if n.Kind != yaml.MappingNode {
			p.at(fmt.Sprintf("%s:%d", path, n.Line), name, "must hold keys with values")
			return
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			e := entry{name: n.Content[i].Value, where: fmt.Sprintf("%s:%d", path, n.Content[i].Line), value: n.Content[i+1]}
			if seen[e.name] {
				p.at(e.where, "", "%s is there twice", e.name)
				continue
			}
			seen[e.name] = true
			if !yield(e) {
				return
			}
		}
	}
}

// scalar is the text of a value; that of a list is its elements with commas.
func scalar(n *yaml.Node) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", errors.New("has no value")
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		var parts []string
		for _, e := range n.Content {
			text, err := scalar(e)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("must be a value or a list")
}

// loadEnv overlays TRIVIUM_SECTION_KEY variables. A variable with the prefix
// that names no key is an error, so that a typing mistake is seen.
func (l *Loaded) loadEnv(environ []string, p *problems) {
	byEnv := map[string]*Setting{}
	for _, s := range l.Settings {
		byEnv[s.Env] = s
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok || reservedEnv[rest] {
			continue
		}
		s, ok := byEnv[name]
		if !ok {
			p.at("environment", "", "unknown setting %s", name)
			continue
		}
		if err := s.set(value, FromEnv, name); err != nil {
			p.at(name, s.Name, "%v", err)
		}
	}
}

// oneLine joins the lines of an error, since start-up errors are one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
