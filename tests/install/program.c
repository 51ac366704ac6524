// tests/install/program.c -- A program that uses an installed Limber.
#include <limber/limber.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  limber_session *session;
  limber_status status =
      limber_session_open(NULL, "no such model", NULL, &session);
  if (argc != 2 || strcmp(limber_version(), argv[1])) return 1;
  if (status != LIMBER_IO || session) return 2;
  puts(limber_last_error());
  return 0;
}
