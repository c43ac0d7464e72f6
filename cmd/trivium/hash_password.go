package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
)

// The formats of hash-password.
const (
	formatBcrypt = "bcrypt"
	formatRabbit = "rabbitmq-sha256"
)

func hashCommand() *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "hash-password",
		Short: "Hash a password for admin.password_hash, or for definitions",
		Long: "Hash a password for admin.password_hash, or for definitions. The password is asked for,\n" +
			"or is the first line of the standard input. From a hash no SCRAM keys can be made: a user\n" +
			"with one logs in with his password in clear.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if form != formatBcrypt && form != formatRabbit {
				return usageError{fmt.Errorf("format %q is none of %s, %s", form, formatBcrypt, formatRabbit)}
			}
			password, err := readPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			text, err := hashed(form, password)
			if err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&form, "format", formatBcrypt, formatBcrypt+"|"+formatRabbit)
	return cmd
}

// hashed is a password's hash as auth.ParseHash reads it.
func hashed(format, password string) (string, error) {
	h, err := auth.HashPassword(password) // which checks it, too
	if err != nil {
		return "", err
	}
	if format == formatRabbit {
		h = auth.SaltedHash(password)
	}
	text := auth.FormatHash(h)
	if again, err := auth.ParseHash(text, kernel.HashNone); err != nil || !auth.CheckPassword(again, password) {
		return "", fmt.Errorf("the hash does not fit the password: %w", err)
	}
	return text, nil
}

// readPassword asks for a password, twice and without echo, at a terminal; else
// it is the first line of in.
func readPassword(in io.Reader, out io.Writer) (string, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(in, 64<<10)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	var typed [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(out, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(out)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		typed[i] = string(b)
	}
	if typed[0] != typed[1] {
		return "", usageError{errors.New("the passwords differ")}
	}
	return typed[0], nil
}
