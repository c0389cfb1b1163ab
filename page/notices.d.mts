import type { Plugin } from "vite";

/** Writes the notices of the libraries that are in the page, and puts them at its end, so that a copy has them too. */
export function thirdParty(): Plugin;
