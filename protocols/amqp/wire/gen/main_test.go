package main

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"testing"
)

// The generated file is what the table says.
func TestGeneratedIsCurrent(t *testing.T) {
	methods, err := parse(filepath.Join("..", "spec.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := format.Source(generate(methods))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "methods_gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("methods_gen.go is not what spec.txt says: run go generate in protocols/amqp/wire")
	}
}

func TestParseErrors(t *testing.T) {
	for name, text := range map[string]string{
		"word": "klass x 1\n", "id": "class x y\n", "method id": "class x 1\nmethod y z -\n", "type": "class x 1\nmethod y 1 - f:word\n", "field": "class x 1\nmethod y 1 - f\n",
	} {
		path := filepath.Join(t.TempDir(), "spec.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parse(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
